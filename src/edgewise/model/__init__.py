"""The user's model, borrowed and given back."""
