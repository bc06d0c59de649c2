#!/bin/sh
# Makes Temporal's two databases and brings their schemas to the version of the
# tool. What is done already is left as it is, so it is run at each start, and an
# upgrade needs nothing else.
#
# The server comes from temporal-sql-tool's own variables: SQL_PLUGIN, SQL_HOST,
# SQL_PORT, SQL_USER, SQL_PASSWORD. DBNAME and VISIBILITY_DBNAME are those of
# Temporal's server.
set -eu

database() { # DATABASE SCHEMA
  temporal-sql-tool --database "$1" create-database
  # On a database that has a version this only makes sure of the version tables.
  temporal-sql-tool --database "$1" setup-schema --version 0.0
  temporal-sql-tool --database "$1" update-schema --schema-name "postgresql/v12/$2"
}

database "${DBNAME:-temporal}" temporal
database "${VISIBILITY_DBNAME:-temporal_visibility}" visibility
