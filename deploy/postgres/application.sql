-- Makes the user and the database of the application beside Temporal's. Postgres's
-- image runs it on the first start; it may be run again, and then sets the
-- password anew:
--
--   docker compose exec postgres psql -U temporal -f /docker-entrypoint-initdb.d/application.sql

\set ON_ERROR_STOP on
\getenv user APPLICATION_USER
\getenv database APPLICATION_DATABASE
\getenv password APPLICATION_PASSWORD

SELECT format('CREATE ROLE %I', :'user')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'user')
\gexec

ALTER ROLE :"user" LOGIN PASSWORD :'password' NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION;

SELECT format('CREATE DATABASE %I OWNER %I', :'database', :'user')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database')
\gexec

-- What is in it decides what is removed.
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
