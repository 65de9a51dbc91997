"""Records against the schemas that their topics ask for, wherever they come in."""
