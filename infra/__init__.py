"""Infrastructure as code: deploys the rest and imports none of it."""
