"""What a user of psycopg does. Says one JSON line for each step; goes on to the commit when a line comes in."""

import json
import sys

import psycopg

url, schema = sys.argv[1:]


def say(step, *what):
    print(json.dumps([step, *what]), flush=True)


def refused(step, connection, text, values):
    try:
        connection.execute(text, values)
    except psycopg.Error as error:
        say(step, error.sqlstate, str(error).splitlines()[0])
    connection.rollback()


with psycopg.connect(url, options=f"-csearch_path={schema}") as connection:
    enqueue = f"select id, existed, done from {schema}.enqueue"

    connection.execute("insert into orders (id) values (%s)", (1,))
    connection.execute(f"{enqueue}('ship', %s)", ('{"order":1}',))
    connection.rollback()
    say("rolled back", connection.execute("select count(*) from jobs").fetchone()[0])

    connection.execute("insert into orders (id) values (%s)", (2,))
    job = connection.execute(f"{enqueue}('ship', %s, once => %s)", ('{"order":2}', "order-2")).fetchone()
    say("open", str(job[0]), job[1], job[2])
    sys.stdin.readline()
    connection.commit()
    say("committed")

    sys.stdin.readline()
    again = connection.execute(f"{enqueue}('ship', %s, once => %s)", ('{"order":2}', "order-2")).fetchone()
    connection.commit()
    say("duplicate", again[0] == job[0], again[1], again[2])

    once = f"select {schema}.once(%s, scope => %s)"
    first = connection.execute(once, ("message-1", "python")).fetchone()[0]
    connection.commit()
    second = connection.execute(once, ("message-1", "python")).fetchone()[0]
    connection.commit()
    say("once", first, second)

    refused("other work", connection, f"{enqueue}('ship', %s, once => %s)", ('{"order":3}', "order-2"))
    refused("no JSON", connection, f"{enqueue}('ship', %s)", ("{",))
    refused("empty kind", connection, f"{enqueue}(%s, '{{}}')", ("",))
    refused("NUL", connection, f"{enqueue}('ship', %s)", ('"a\0b"',))
