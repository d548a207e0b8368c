// What a user of node-postgres does. Says one JSON line for each step; goes on to the commit when a line comes in.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [url, schema] = process.argv.slice(2);
// Modules are looked up beside the script, and these are not there.
const { Client } = createRequire(process.env.HAPAX_TEST_NODE_MODULES + "/")("pg");
const say = (...what) => console.log(JSON.stringify(what));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const client = new Client({ connectionString: url });
await client.connect();
await client.query(`set search_path = ${schema}`);
const enqueue = `select id, existed, done from ${schema}.enqueue`;

async function refused(step, text, values) {
    await client.query("begin");
    await client.query(text, values).catch((error) => say(step, error.code, error.message));
    await client.query("rollback");
}

await client.query("begin");
await client.query("insert into orders (id) values ($1)", [1]);
await client.query(`${enqueue}('ship', $1)`, [{ order: 1 }]);
await client.query("rollback");
say("rolled back", Number((await client.query("select count(*) from jobs")).rows[0].count));

await client.query("begin");
await client.query("insert into orders (id) values ($1)", [2]);
const job = (await client.query(`${enqueue}('ship', $1, once => $2)`, [{ order: 2 }, "order-2"])).rows[0];
say("open", job.id, job.existed, job.done);
await lines.next();
await client.query("commit");
say("committed");

await lines.next();
const again = (await client.query(`${enqueue}('ship', $1, once => $2)`, [{ order: 2 }, "order-2"])).rows[0];
say("duplicate", again.id === job.id, again.existed, again.done);

const once = `select ${schema}.once($1, scope => $2) as is_first`;
const first = (await client.query(once, ["message-1", "node"])).rows[0].is_first;
const second = (await client.query(once, ["message-1", "node"])).rows[0].is_first;
say("once", first, second);

await refused("other work", `${enqueue}('ship', $1, once => $2)`, [{ order: 3 }, "order-2"]);
await refused("no JSON", `${enqueue}('ship', $1)`, ["{"]);
await refused("empty kind", `${enqueue}($1, '{}')`, [""]);
await refused("NUL", `${enqueue}('ship', $1)`, ['"a\0b"']);
await client.end();
process.exit(0);
