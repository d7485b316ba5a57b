//! Shell text as one line.
//!
//! A command is appended to words of ours (`flux submit -N4 ... COMMAND`), so a line break
//! in it would end that command and start another: on the lead, outside Flux, with an exit
//! code of its own. Users break long commands into lines all the same, and the Go operator
//! splits them at any whitespace. So lines are joined here, by the rules by which a shell finds
//! its words (POSIX.1-2024, Shell Command Language, 2.2 and 2.3), and text that cannot be
//! joined is refused.

use std::iter::Peekable;
use std::str::Chars;

/// Why a text cannot be one command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OneLineError {
    /// A quote, parenthesis or brace that is not closed.
    #[error("has {0} that is not closed")]
    Unclosed(&'static str),
    /// A here-document, whose lines are input and not words.
    #[error("has a here-document, which cannot be part of one command: use commands.script")]
    HereDocument,
    /// An operator between commands, in a text with several lines.
    #[error(
        "has several lines and {0:?} outside of quotes: lines are joined to one command, so it is \
         not clear what is meant. Quote it if it belongs to a word, use commands.script for a \
         script, or batch: true if each line is a job"
    )]
    Operator(char),
    /// An `&` that would run the command in the background, where its exit code is lost.
    #[error(
        "has \"&\" outside of quotes, which would not wait for the command: remove it, or quote \
         it if it belongs to a word"
    )]
    Background,
    /// A script, whose lines are separate commands.
    #[error("begins with \"#!\", as a script does: use commands.script")]
    Script,
    /// Nothing but comments.
    #[error("has only comments: there is nothing to run")]
    Empty,
}

/// The text as one line: whitespace and line breaks outside of quotes become one blank, and
/// comments are removed.
pub fn one_line(text: &str) -> Result<String, OneLineError> {
    if text.trim_start().starts_with("#!") {
        return Err(OneLineError::Script);
    }
    let mut scanner = Scanner::new(text);
    while let Some(next) = scanner.rest.next() {
        scanner.take(next)?;
    }
    scanner.finish(text)
}

/// What encloses a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enclosure {
    /// `'...'`
    Single,
    /// `$'...'`
    Ansi,
    /// `"..."`
    Double,
    /// `` `...` ``
    Backquote,
    /// `$(...)`, and parentheses within
    Parenthesis,
    /// `${...}`
    Brace,
}

struct Scanner<'a> {
    rest: Peekable<Chars<'a>>,
    open: Vec<Enclosure>,
    line: String,
    /// Where the last word ends in the line.
    end: usize,
    /// The scanner is inside a word, where `#` does not begin a comment.
    in_word: bool,
    /// There was a line break after the last word.
    after_line_break: bool,
    /// There are words after a line break.
    is_multiline: bool,
    operator: Option<char>,
    /// The last character, if it is an operator of the shell, such as `>`, `<`, `|` or `&`.
    last_operator: Option<char>,
    background: bool,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Scanner {
            rest: text.chars().peekable(),
            open: Vec::new(),
            line: String::with_capacity(text.len()),
            end: 0,
            in_word: false,
            after_line_break: false,
            is_multiline: false,
            operator: None,
            last_operator: None,
            background: false,
        }
    }

    fn take(&mut self, next: char) -> Result<(), OneLineError> {
        match (self.open.last(), next) {
            (Some(Enclosure::Single), '\'') | (Some(Enclosure::Ansi), '\'') => self.close(next),
            (Some(Enclosure::Single), _) => self.push(next),
            (_, '\\') => self.escape(),
            (Some(Enclosure::Ansi), _) => self.push(next),
            (Some(Enclosure::Backquote), '`')
            | (Some(Enclosure::Double), '"')
            | (Some(Enclosure::Parenthesis), ')')
            | (Some(Enclosure::Brace), '}') => self.close(next),
            (Some(Enclosure::Backquote), _) => self.push(next),
            (_, '`') => self.enter(Enclosure::Backquote, next),
            (_, '$') => self.take_dollar(),
            (Some(Enclosure::Double), _) => self.push(next),
            (_, '"') => self.enter(Enclosure::Double, next),
            (_, '\'') => self.enter(Enclosure::Single, next),
            (Some(Enclosure::Parenthesis), '(') => self.enter(Enclosure::Parenthesis, next),
            (Some(Enclosure::Parenthesis), '#') if !self.in_word => self.keep_comment(),
            (Some(Enclosure::Parenthesis), _) => {
                self.push(next);
                self.in_word = !" \t\n;&|".contains(next);
            }
            (Some(Enclosure::Brace), _) => self.push(next),
            (None, '#') if !self.in_word => self.drop_comment(),
            (None, '\n') => self.break_line(),
            (None, '<') if self.rest.peek() == Some(&'<') => return self.take_less_than(),
            (None, ';' | '&' | '|' | '(' | ')') => self.take_operator(next),
            (None, '<' | '>') => {
                self.push(next);
                self.last_operator = Some(next);
            }
            (None, ' ' | '\t') => self.space(),
            (None, _) => self.push(next),
        }
        Ok(())
    }

    fn finish(mut self, text: &str) -> Result<String, OneLineError> {
        if let Some(open) = self.open.last() {
            return Err(OneLineError::Unclosed(match open {
                Enclosure::Single | Enclosure::Ansi => "a single quote",
                Enclosure::Double => "a double quote",
                Enclosure::Backquote => "a backquote",
                Enclosure::Parenthesis => "a parenthesis",
                Enclosure::Brace => "a brace",
            }));
        }
        if self.background {
            return Err(OneLineError::Background);
        }
        if let Some(operator) = self.operator.filter(|_| self.is_multiline) {
            return Err(OneLineError::Operator(operator));
        }
        self.line.truncate(self.end);
        if self.line.is_empty() && !text.trim().is_empty() {
            return Err(OneLineError::Empty);
        }
        Ok(self.line)
    }

    /// Part of a word.
    fn push(&mut self, next: char) {
        if self.end == 0 {
            self.line.clear();
        }
        self.is_multiline |= self.after_line_break && self.end > 0;
        self.after_line_break = false;
        self.line.push(next);
        self.end = self.line.len();
        self.in_word = true;
        self.last_operator = None;
    }

    /// Between words, where several blanks become one.
    fn space(&mut self) {
        if self.end == self.line.len() {
            self.line.push(' ');
        }
        self.in_word = false;
        self.last_operator = None;
    }

    fn enter(&mut self, open: Enclosure, next: char) {
        self.push(next);
        self.open.push(open);
        self.in_word = open != Enclosure::Parenthesis;
    }

    fn close(&mut self, next: char) {
        self.push(next);
        self.open.pop();
    }

    /// A backslash escapes the next character. Before a line break, or at the end of the text,
    /// it is dropped: otherwise it would escape what we append.
    fn escape(&mut self) {
        match self.rest.next() {
            None if self.open.is_empty() => {}
            Some('\n') if self.open.is_empty() => self.after_line_break = true,
            next => {
                self.push('\\');
                next.into_iter().for_each(|next| self.push(next));
            }
        }
    }

    fn take_dollar(&mut self) {
        let in_double = self.open.last() == Some(&Enclosure::Double);
        let open = match self.rest.peek() {
            Some('(') => Enclosure::Parenthesis,
            Some('{') => Enclosure::Brace,
            Some('\'') if !in_double => Enclosure::Ansi,
            _ => return self.push('$'),
        };
        self.push('$');
        if let Some(next) = self.rest.next() {
            self.enter(open, next);
        }
    }

    fn drop_comment(&mut self) {
        while self.rest.next_if(|next| *next != '\n').is_some() {}
    }

    fn keep_comment(&mut self) {
        self.push('#');
        while let Some(next) = self.rest.next_if(|next| *next != '\n') {
            self.push(next);
        }
    }

    fn break_line(&mut self) {
        self.after_line_break = true;
        self.space();
    }

    /// `<<`, which begins a here-document, or `<<<`, which does not.
    fn take_less_than(&mut self) -> Result<(), OneLineError> {
        self.rest.next();
        if self.rest.next_if_eq(&'<').is_none() {
            return Err(OneLineError::HereDocument);
        }
        "<<<".chars().for_each(|next| self.push(next));
        Ok(())
    }

    /// An operator between commands, or part of a redirection such as `2>&1`, `&>` or `>|`.
    fn take_operator(&mut self, next: char) {
        let redirects = matches!((self.last_operator, next), (Some('>' | '<'), '&' | '|'))
            || next == '&' && self.rest.peek() == Some(&'>');
        if !redirects {
            self.operator.get_or_insert(next);
            // `&&` and `|&` do not run a command in the background.
            let is_and_or_pipe =
                self.rest.peek() == Some(&'&') || matches!(self.last_operator, Some('&' | '|'));
            self.background |= next == '&' && !is_and_or_pipe;
        }
        self.push(next);
        self.in_word = false;
        self.last_operator = Some(next).filter(|_| !redirects);
    }
}

#[cfg(test)]
mod tests {
    use super::OneLineError::{Background, Empty, HereDocument, Operator, Script, Unclosed};
    use super::*;

    #[test]
    fn lines_are_joined_and_what_is_in_quotes_stays() {
        for (text, line) in [
            ("", ""),
            ("\n\n", ""),
            ("hostname", "hostname"),
            ("  hostname \n", "hostname"),
            ("lmp -in a\n  -var x 1\n", "lmp -in a -var x 1"),
            ("lmp \\\n  -in a \\\n", "lmp -in a"),
            ("lmp\\\nx", "lmpx"),
            ("\n\n# what it does\nhostname\n# done\n", "hostname"),
            ("hostname # where\n -f", "hostname -f"),
            ("hostname # don't", "hostname"),
            ("echo a#b $# ${#a} '#' \"#\" \\#", "echo a#b $# ${#a} '#' \"#\" \\#"),
            ("python -c \"\na = 1\nprint(a)\n\"\n", "python -c \"\na = 1\nprint(a)\n\""),
            ("python -c 'a;\n# b\nc'\n -v", "python -c 'a;\n# b\nc' -v"),
            ("echo $'it\\'s\n' b", "echo $'it\\'s\n' b"),
            ("echo \"$(date; echo \")\"\n)\"\n-n", "echo \"$(date; echo \")\"\n)\" -n"),
            ("echo $(a # don't )\nb; c)\n-n", "echo $(a # don't )\nb; c) -n"),
            ("echo `a\nb`\n-n", "echo `a\nb` -n"),
            ("echo `a`#b $(a)#b \\ #b \\;#b", "echo `a`#b $(a)#b \\ #b \\;#b"),
            ("echo ${a:-b # c}\n-n", "echo ${a:-b # c} -n"),
            ("echo \\\"a\nb\\\"", "echo \\\"a b\\\""),
            ("lmp\n> out 2>&1\n&> all\n>| more", "lmp > out 2>&1 &> all >| more"),
            ("cat <<<a\nb", "cat <<<a b"),
            // A single line is taken as it would be at a prompt.
            ("a; b && c | d |& (e)", "a; b && c | d |& (e)"),
            ("echo a\\&b '&' \"a&b\"", "echo a\\&b '&' \"a&b\""),
            ("echo $((1<<2))", "echo $((1<<2))"),
            // A trailing backslash does not escape what follows.
            ("echo a\\", "echo a"),
            ("echo a\\ ", "echo a\\ "),
        ] {
            assert_eq!(one_line(text).as_deref(), Ok(line), "{text:?}");
        }
    }

    #[test]
    fn text_that_cannot_be_one_command_is_refused_with_its_error() {
        for (text, error) in [
            ("echo 'a\nb", Unclosed("a single quote")),
            ("echo \"a", Unclosed("a double quote")),
            ("echo `a\n", Unclosed("a backquote")),
            ("echo $(a\n", Unclosed("a parenthesis")),
            ("echo ${a\n", Unclosed("a brace")),
            ("cat <<EOF\na\nEOF\n", HereDocument),
            ("cat <<-'EOF' | sh\na\nEOF\n", HereDocument),
            ("hostname;\necho done", Operator(';')),
            ("hostname &&\necho done", Operator('&')),
            ("hostname\n| wc", Operator('|')),
            ("(a\nb)", Operator('(')),
            // A line that continues another after a backslash counts as a line too.
            ("hostname; \\\n echo done", Operator(';')),
            ("hostname && \\\n echo done", Operator('&')),
            // An escaped character does not redirect.
            ("echo \\>|\necho done", Operator('|')),
            ("echo \\>&\necho done", Background),
            ("sleep 9 &", Background),
            ("sleep 9 & sleep 1", Background),
            ("curl http://x/?a=1&b=2", Background),
            ("#!/bin/bash\necho a\nexit 7", Script),
            ("\n #!/bin/sh\necho a", Script),
            ("# nothing\n\n  # at all", Empty),
            ("#", Empty),
        ] {
            assert_eq!(one_line(text), Err(error), "{text:?}");
        }
    }
}
