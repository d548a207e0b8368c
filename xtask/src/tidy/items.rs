//! Finds the items that the laws speak about: functions, module declarations and attributes.

use super::lex::{Kind, Token};

/// A function with a body or without one.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    /// The line of its closing brace, or of the semicolon.
    pub(super) end_line: usize,
    /// Whether it is `pub` without a restriction such as `pub(crate)`.
    pub(super) public: bool,
    /// The words of its first parameter, such as `h dyn Harness`.
    pub(super) first_parameter: Vec<String>,
}

impl Function {
    /// How long it is, from `fn` to its closing brace.
    pub(super) fn lines(&self) -> usize {
        self.end_line - self.line + 1
    }
}

/// A `mod name;` that needs a file.
#[derive(Debug)]
pub(super) struct Declared {
    /// The inline modules around it, then its own name.
    pub(super) path: Vec<String>,
    /// The value of a `#[path = "…"]` before it.
    pub(super) file: Option<String>,
}

/// The index of the bracket that closes the one at `open`, or of the last token.
pub(super) fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        if token.kind != Kind::Mark {
            continue;
        }
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len() - 1
}

/// Every function of a file, nested ones included.
pub(super) fn functions(tokens: &[Token]) -> Vec<Function> {
    let mut found = Vec::new();
    for index in 0..tokens.len() {
        // `fn(` is a pointer type.
        let Some(name) = tokens.get(index + 1).filter(|next| tokens[index].is("fn") && next.is_word()) else {
            continue;
        };
        found.push(Function {
            name: name.text.clone(),
            line: tokens[index].line,
            end_line: tokens[end_of_function(tokens, index)].line,
            public: is_public(&tokens[..index]),
            first_parameter: first_parameter(&tokens[index..]),
        });
    }
    found
}

/// The index of the closing brace of the body, or of the semicolon that stands for it.
fn end_of_function(tokens: &[Token], start: usize) -> usize {
    let mut index = start;
    while index < tokens.len() {
        let token = &tokens[index];
        if token.is("{") {
            return closing(tokens, index);
        } else if token.is(";") {
            return index;
        }
        // Parameters and array types may hold braces and semicolons of their own.
        index = if token.is("(") || token.is("[") { closing(tokens, index) + 1 } else { index + 1 };
    }
    tokens.len() - 1
}

/// Whether the tokens before `fn` end with a `pub` that is not restricted.
fn is_public(before: &[Token]) -> bool {
    let qualifies = |token: &&Token| {
        token.kind == Kind::Text || ["async", "const", "unsafe", "extern"].iter().any(|word| token.is(word))
    };
    before.iter().rev().find(|token| !qualifies(token)).is_some_and(|token| token.is("pub"))
}

/// The words of the first parameter of the function that begins the slice.
fn first_parameter(tokens: &[Token]) -> Vec<String> {
    let Some(open) = tokens.iter().position(|token| token.is("(")) else { return Vec::new() };
    let parameters = &tokens[open + 1..closing(tokens, open)];
    parameters
        .iter()
        .take_while(|token| !token.is(","))
        .filter(|token| token.is_word())
        .map(|t| t.text.clone())
        .collect()
}

/// Every `mod name;` of a file.
pub(super) fn declared(tokens: &[Token]) -> Vec<Declared> {
    let mut found = Vec::new();
    let mut around: Vec<(String, usize)> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        around.retain(|(_, end)| *end > index);
        let [_, name, after, ..] = &tokens[index..] else { break };
        if !token.is("mod") || !name.is_word() {
            continue;
        }
        if after.is("{") {
            around.push((name.text.clone(), closing(tokens, index + 2)));
        } else if after.is(";") {
            let mut path: Vec<String> = around.iter().map(|(name, _)| name.clone()).collect();
            path.push(name.text.clone());
            found.push(Declared { path, file: path_attribute(&tokens[..index]) });
        }
    }
    found
}

/// The value of a `#[path = "…"]` among the attributes that stand just before an item.
fn path_attribute(before: &[Token]) -> Option<String> {
    let begin = before.iter().rposition(|token| token.is(";") || token.is("}")).map_or(0, |index| index + 1);
    let own = &before[begin..];
    let at = own.windows(2).position(|pair| pair[0].is("path") && pair[1].is("="))?;
    own.get(at + 2).filter(|token| token.kind == Kind::Text).map(|token| token.text.clone())
}

/// The inside of every attribute, `#[…]` and `#![…]`.
pub(super) fn attributes(tokens: &[Token]) -> Vec<&[Token]> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.is("#")) {
        let open = if tokens.get(index + 1).is_some_and(|next| next.is("!")) { index + 2 } else { index + 1 };
        if tokens.get(open).is_some_and(|next| next.is("[") && next.line >= token.line) {
            found.push(&tokens[open + 1..closing(tokens, open)]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::lex::lex;
    use super::*;

    #[test]
    fn functions_end_at_their_own_brace() {
        let text = "pub async fn a(h: &dyn Harness, x: [u8; 2]) -> Result<(), E>\nwhere T: Fn(u8) {\n  \"}\";\n \
                    pub(crate) fn b() {}\n}\ntrait C { fn d(&self); }\ntype F = fn(u8);";
        let found = functions(&lex(text).0);
        let spans: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.end_line, f.public)).collect();
        assert_eq!(spans, [("a", 1, 5, true), ("b", 4, 4, false), ("d", 6, 6, false)]);
        assert_eq!(found[0].first_parameter, ["h", "dyn", "Harness"]);
    }

    #[test]
    fn declarations_know_where_they_stand() {
        let text = "mod a; mod b { #[cfg(test)] #[path = \"z.rs\"] mod c; } mod d;";
        let found = declared(&lex(text).0);
        let paths: Vec<_> = found.iter().map(|d| (d.path.join("/"), d.file.as_deref())).collect();
        assert_eq!(paths, [("a".into(), None), ("b/c".into(), Some("z.rs")), ("d".into(), None)]);
    }
}
