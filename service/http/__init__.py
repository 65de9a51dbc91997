"""HTTP without routes: requests, responses, problems, metrics, the access log."""
