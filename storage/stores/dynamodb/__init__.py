"""The metadata table in DynamoDB."""
