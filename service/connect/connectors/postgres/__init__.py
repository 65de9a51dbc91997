"""PostgreSQL change data capture: pgoutput read by SQL, records as Debezium makes them.

`plugins.py` says what it is, `task.py` runs it, `position.py` has the reasoning why each change
comes once. Pure modules: `pgoutput`, `text_values`, `columns`, `defaults`, `envelope`, `position`.
"""
