"""JSON Schema as a form of the registry: drafts 4 to 2020-12, their `$ref`s, what can read what.

What a schema is, and its limits, is below in `storage/schemas/json_schema`. Compatibility, from
below: `shapes` (what a schema says), `pairs` (memory of what was compared), `rules` (names),
`content`, `scalars`, `objects`, `arrays`, `combinations` (what is compared), `compatibility` (all
of them). `form` is the whole.
"""
