"""JSON Schema: drafts 4 to 2020-12, their `$ref`s, limits, and values that are checked.

From below: `reading` (text to values, exact), `drafts` (keywords), `documents` (where each `$ref`
leads), `limits` (bombs), `engine` (the library that checks data), `values` (many values at once),
`codec` (records).
"""
