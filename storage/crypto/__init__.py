"""Keys that seal the records of a topic, and how they seal them."""
