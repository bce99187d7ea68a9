"""What a new user waits for."""
