"""What a report finds out, each kind in a module of its own."""
