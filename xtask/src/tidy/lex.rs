//! Takes Rust apart into words, marks, string literals and comments: just enough that a law about code is not broken by
//! a comment, and a law about prose is not broken by code.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An identifier or a keyword; a raw identifier without its `r#`.
    Word,
    /// The content of a string literal, escapes untouched.
    Text,
    /// One punctuation character.
    Mark,
    /// A number, a character literal or a lifetime: no law looks inside.
    Other,
}

/// One piece of code.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: String,
    pub(super) line: usize,
}

impl Token {
    /// Whether this is the given word or mark.
    pub(super) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }

    /// Whether this is any word.
    pub(super) fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

/// One line of a comment, doc comments included, without its slashes.
#[derive(Debug, Clone)]
pub(super) struct Comment {
    pub(super) text: String,
    pub(super) line: usize,
}

/// Takes a source file apart. Never fails: what rustc would refuse comes out as marks.
pub(super) fn lex(text: &str) -> (Vec<Token>, Vec<Comment>) {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, line: 1, tokens: vec![], comments: vec![] };
    while lexer.at < lexer.chars.len() {
        lexer.step();
    }
    (lexer.tokens, lexer.comments)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
}

impl Lexer {
    /// The character `ahead` of the current one, or NUL behind the end.
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Takes one character and counts the line it may end.
    fn take(&mut self) -> char {
        let taken = self.peek(0);
        self.line += usize::from(taken == '\n');
        self.at += 1;
        taken
    }

    /// Takes characters as long as they belong to a word.
    fn take_word(&mut self) -> String {
        let mut word = String::new();
        while self.peek(0) == '_' || self.peek(0).is_alphanumeric() {
            word.push(self.take());
        }
        word
    }

    fn push(&mut self, kind: Kind, text: String, line: usize) {
        self.tokens.push(Token { kind, text, line });
    }

    /// Takes the next token or comment, or one blank.
    fn step(&mut self) {
        let line = self.line;
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => self.line_comment(),
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(line),
            ('\'', _) => self.quote(line),
            (c, _) if c == '_' || c.is_alphabetic() => self.word(line),
            (c, _) if c.is_ascii_digit() => self.number(line),
            (c, _) if c.is_whitespace() => {
                self.take();
            }
            (c, _) => {
                self.take();
                self.push(Kind::Mark, c.to_string(), line);
            }
        }
    }

    fn line_comment(&mut self) {
        let line = self.line;
        let mut text = String::new();
        while self.at < self.chars.len() && self.peek(0) != '\n' {
            text.push(self.take());
        }
        let text = text.trim_start_matches(['/', '!']).trim().to_string();
        self.comments.push(Comment { text, line });
    }

    fn block_comment(&mut self) {
        let line = self.line;
        let mut text = String::new();
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    text.push(self.take());
                    continue;
                }
            }
            self.at += 2;
            if depth == 0 {
                break;
            }
        }
        for (index, part) in text.split('\n').enumerate() {
            let text = part.trim().trim_start_matches(['*', '!']).trim().to_string();
            self.comments.push(Comment { text, line: line + index });
        }
    }

    /// A string literal with escapes; the current character is its opening quote.
    fn string(&mut self, line: usize) {
        self.take();
        let mut text = String::new();
        while self.at < self.chars.len() {
            match self.take() {
                '"' => break,
                '\\' => text.extend(['\\', self.take()]),
                other => text.push(other),
            }
        }
        self.push(Kind::Text, text, line);
    }

    /// A raw string literal; the current character is its first `#` or its opening quote.
    fn raw_string(&mut self, line: usize) {
        let mut hashes = 0;
        while self.peek(0) == '#' {
            self.take();
            hashes += 1;
        }
        self.take();
        let mut text = String::new();
        while self.at < self.chars.len() {
            if self.peek(0) == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == '#') {
                self.at += 1 + hashes;
                break;
            }
            text.push(self.take());
        }
        self.push(Kind::Text, text, line);
    }

    /// A character literal or a lifetime.
    fn quote(&mut self, line: usize) {
        let escaped = self.peek(1) == '\\';
        if !escaped && self.peek(2) != '\'' {
            self.take();
            let name = self.take_word();
            return self.push(Kind::Other, name, line);
        }
        // The quote and the character, which may itself be a quote or an escape, then on to the closing quote.
        self.at += if escaped { 3 } else { 1 };
        let mut text = String::new();
        while self.at < self.chars.len() {
            match self.take() {
                '\'' => break,
                other => text.push(other),
            }
        }
        self.push(Kind::Other, text, line);
    }

    /// A word, or what it is the prefix of.
    fn word(&mut self, line: usize) {
        let word = self.take_word();
        let raw_string = self.peek(0) == '"' || (self.peek(0) == '#' && matches!(self.peek(1), '#' | '"'));
        match word.as_str() {
            "r" | "br" | "cr" if raw_string => self.raw_string(line),
            "b" | "c" if self.peek(0) == '"' => self.string(line),
            "b" if self.peek(0) == '\'' => self.quote(line),
            "r" if self.peek(0) == '#' => {
                self.take();
                let word = self.take_word();
                self.push(Kind::Word, word, line);
            }
            _ => self.push(Kind::Word, word, line),
        }
    }

    fn number(&mut self, line: usize) {
        let mut text = self.take_word();
        if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
            text.push(self.take());
            text += &self.take_word();
        }
        self.push(Kind::Other, text, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        lex(text).0.into_iter().filter(Token::is_word).map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = "a /* b /* c */ d */ \"e // f\" r#\"g \" h\"# b'i' '\\'' 'j' // k\nl";
        assert_eq!(words(text), ["a", "l"]);
        let (tokens, comments) = lex(text);
        assert_eq!(tokens.last().map(|token| token.line), Some(2));
        assert_eq!(comments.last().map(|comment| comment.text.as_str()), Some("k"));
    }

    #[test]
    fn lifetimes_do_not_swallow_code() {
        assert_eq!(
            words("fn f<'a>(x: &'a str, y: &'static u8) -> char { '}' }"),
            ["fn", "f", "x", "str", "y", "u8", "char"]
        );
        assert_eq!(lex("'{' '\\u{7d}' b'}' '\"'").0.iter().filter(|token| token.kind == Kind::Mark).count(), 0);
    }

    #[test]
    fn raw_words_and_ranges() {
        assert_eq!(words("r#type r cr#\"x\"# 0..n 1.5e3.round()"), ["type", "r", "n", "round"]);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let (tokens, _) = lex("\"a\nb\" /* c\n\nd */ e");
        assert_eq!(tokens.last().map(|token| (token.text.as_str(), token.line)), Some(("e", 4)));
    }
}
