//! What must not compile, with the message that says why.

#[test]
fn what_must_not_compile_says_why() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
