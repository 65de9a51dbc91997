"""The schema registry: schemas, subjects and their versions, as Confluent's clients know them."""
