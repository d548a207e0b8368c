//! What must not compile, with the message that says why.

#[test]
fn what_must_not_compile_says_why() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    #[cfg(feature = "postgres")]
    cases.compile_fail("tests/ui/postgres/*.rs");
}
