"""What happens to a conversation before it is rendered: it is said in another way, or cut."""
