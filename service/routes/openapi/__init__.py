"""What the OpenAPI document says of the routes."""
