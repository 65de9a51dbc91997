"""The JDBC source and sink: tables of SQLite, PostgreSQL, MariaDB and MySQL.

plugins      what is configured, and its checks; imports no driver
urls         `connection.url`, as JDBC and as SQLAlchemy write it
dialects     how the databases differ in text: quotes, placeholders, names of tables
connecting   one connection for a task: SQLAlchemy on asyncpg, PyMySQL or sqlite3
failures     what an error of a database means for a task
columns      what the columns of a table or a query are
source       rows -> records
sink         records -> rows
"""
