"""What the HTTP faces offer, as an OpenAPI document and a page that shows it."""
