"""HTTP to a gateway: requests, bodies, credentials, retries."""
