"""OpenAPI descriptions of the routes."""
