//! The schema on one page is the schema.

use std::path::Path;

use sqlx::Executor;

use super::place::Place;

#[tokio::test]
async fn schema() {
    let place = Place::new().await;
    let mut connection = place.connection().await;
    // Or names would lose their schema.
    connection.execute("set search_path = pg_catalog").await.expect("a setting");
    let text = include_str!("catalogue.sql").replace(":schema", "$1");
    let things: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(text))
        .bind(&place.schema)
        .fetch_all(&mut connection)
        .await
        .expect("the catalogue answers");
    let page = format!(
        "-- The whole schema after all migrations, for people: nothing reads it.\n\
         -- Rewritten by HAPAX_BLESS=1 cargo test --test it schema\n\n{};\n",
        things.join(";\n\n")
    );
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/schema.sql");
    if std::env::var_os("HAPAX_BLESS").is_some() {
        std::fs::write(&file, &page).expect("written");
    }
    let kept = std::fs::read_to_string(&file).expect("schema.sql is there");
    assert!(kept == page, "schema.sql is not the schema; look at it and bless it with HAPAX_BLESS=1");
}
