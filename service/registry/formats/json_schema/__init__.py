"""JSON Schema as a form of the registry: drafts 4 to 2020-12, their `$ref`s, what can read what.

From below: `reading` (text to values, exact), `drafts` (keywords), `documents` (where each `$ref`
leads), `limits` (bombs), `engine` (the library that checks data). Then compatibility: `shapes`
(what a schema says), `pairs` (memory of what was compared), `rules` (names), `content`, `scalars`,
`objects`, `arrays`, `combinations` (what is compared), `compatibility` (all of them). `form`
is the whole.
"""
