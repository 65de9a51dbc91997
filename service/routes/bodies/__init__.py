"""Bodies of requests and answers, by what they are about."""
