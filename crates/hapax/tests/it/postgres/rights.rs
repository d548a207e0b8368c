//! A role with no more than the rights that the recipe grants.

use sqlx::{Executor, PgConnection};
use uuid::Uuid;

use super::functions::{claim, register};
use super::place::Place;

const RECIPE: &str = include_str!("../../../../../docs/recipes/enqueue-from-sql.md");

async fn run(connection: &mut PgConnection, text: String) {
    let done = connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text.clone()))).await;
    done.unwrap_or_else(|error| panic!("{text}: {error}"));
}

#[tokio::test]
async fn the_grants_of_the_recipe_are_enough() {
    let place = Place::new().await;
    let (store, mut own) = (place.store().await, place.connection().await);
    let role = format!("hapax_test_{}", Uuid::now_v7().simple());
    run(&mut own, format!("create role {role}")).await;
    let grants: Vec<&str> = RECIPE.lines().filter(|line| line.starts_with("grant ")).collect();
    assert!(grants.len() > 3, "{grants:?}");
    for grant in grants {
        let schema = grant.replace("hapax.", &format!("{}.", place.schema));
        let schema = schema.replace("schema hapax", &format!("schema {}", place.schema));
        run(&mut own, schema.replace(" to app;", &format!(" to {role};"))).await;
    }
    run(&mut own, format!("set role {role}")).await;
    run(&mut own, "select * from enqueue('k', '{}', once => 'x')".to_owned()).await;
    run(&mut own, "select * from enqueue('k', '{}', once => 'x')".to_owned()).await;
    run(&mut own, "select once('m'); select once('m')".to_owned()).await;
    let ran = claim(&store, register(&store).await).await.expect("ready");
    let (job, fence) = (ran.job, ran.fence);
    run(&mut own, format!("select fence_ok('{job}', {fence}), fence_ok('{job}', 1), lock_ok('l', 0, 1)")).await;
    run(&mut own, format!("select finish('{job}', 1), finish('{job}', {fence})")).await;
    // The key of a job that went without effect is taken over under a lock, with what it refused folded in.
    run(&mut own, "select * from enqueue('k', '{}', once => 'y', keep_key_ms => 0)".to_owned()).await;
    let ran = claim(&store, register(&store).await).await.expect("ready");
    run(&mut own, format!("select finish('{}', {})", ran.job, ran.fence)).await;
    run(&mut own, "select * from enqueue('k', '{}', once => 'y')".to_owned()).await;
    run(&mut own, format!("reset role; drop owned by {role}; drop role {role}")).await;
}
