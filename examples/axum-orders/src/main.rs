//! A web service that takes orders and ships each of them once, whatever is killed in between.
//!
//! The order and the job that ships it are one transaction of the service's own pool: there is no order without its
//! job, and no job without its order. The shipment and the end of that job are one transaction as well: no order is
//! shipped twice. The host that works runs in the same process.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use hapax::host::{EffectTx, Finished};
use hapax::{Hapax, Host, Job, JobError, JobExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor as _, PgPool, Postgres, Row as _};

/// The job: ship one order.
#[derive(Serialize, Deserialize)]
struct Ship {
    order: i64,
}

impl Job for Ship {
    const KIND: &'static str = "ship";
}

/// What a client sends.
#[derive(Deserialize)]
struct NewOrder {
    item: String,
}

/// Ships an order: the row and the end of this job are one commit.
async fn ship(job: Ship, mut tx: EffectTx<Postgres>) -> Result<Finished, JobError> {
    sqlx::query("insert into shipments (order_id) values ($1)").bind(job.order).execute(&mut *tx).await?;
    tx.finish().await
}

/// Takes an order. Answered only once it is committed, and its job with it.
async fn take(
    State(pool): State<PgPool>,
    Json(order): Json<NewOrder>,
) -> Result<(StatusCode, Json<Value>), StatusCode> {
    // In a task of its own, which goes on when the client hangs up.
    let taking = tokio::spawn(async move {
        let mut tx = pool.begin().await?;
        let row = sqlx::query("insert into orders (item) values ($1) returning id").bind(order.item);
        let id: i64 = row.fetch_one(&mut *tx).await?.try_get(0)?;
        Ship { order: id }.once(format!("order-{id}")).enqueue_in(&mut *tx).await?;
        tx.commit().await?;
        Ok::<i64, hapax::BoxError>(id)
    });
    match taking.await {
        Ok(Ok(id)) => Ok((StatusCode::CREATED, Json(json!({ "order": id })))),
        Ok(Err(error)) => {
            eprintln!("an order was not taken: {error}");
            Err(StatusCode::SERVICE_UNAVAILABLE)
        }
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// How many orders there are, and how many shipments.
async fn count(State(pool): State<PgPool>) -> Result<Json<Value>, StatusCode> {
    let text = "select (select count(*) from orders), (select count(*) from shipments)";
    let row = pool.fetch_one(text).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let number = |at| row.try_get::<i64, _>(at).unwrap_or_default();
    Ok(Json(json!({ "orders": number(0), "shipments": number(1) })))
}

#[tokio::main]
async fn main() -> Result<(), hapax::BoxError> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL, such as postgres://me@localhost/shop")?;
    let pool = PgPoolOptions::new()
        .max_connections(10)
        // The driver leaks an open transaction when a `begin` is dropped half-way; it ends here at the latest.
        .after_release(|connection, _| {
            Box::pin(async move {
                connection.execute("rollback").await?;
                Ok(true)
            })
        })
        .connect(&url)
        .await?;
    let tables = "create table if not exists orders (id bigserial primary key, item text not null);
                  create table if not exists shipments (order_id bigint not null references orders)";
    pool.execute(sqlx::raw_sql(tables)).await?;
    Hapax::migrate_pool(&pool).await?;

    let host = Host::builder(Hapax::with_pool(&pool).await?, ())
        .queue("default", |queue| queue.workers(4))
        .lease(Duration::from_secs(5))
        .task(ship)
        .start()
        .await?;
    let app = Router::new().route("/orders", post(take)).route("/counts", get(count)).with_state(pool);
    let port = std::env::var("PORT").unwrap_or_else(|_| "8080".to_owned());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async {
        // A process that cannot be asked to stop goes on until it is killed.
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    host.drain().await;
    Ok(())
}
