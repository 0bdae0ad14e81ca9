"""What a network costs."""
