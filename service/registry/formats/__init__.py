"""Forms of schemas: read, written in one normal way, compared. Pure: no store, HTTP or clock."""
