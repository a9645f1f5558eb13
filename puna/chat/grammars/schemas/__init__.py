"""JSON Schemas as clients write them, made into those that llguidance can hold replies to."""
