"""What is needed to reproduce the numbers that the paper prints."""
