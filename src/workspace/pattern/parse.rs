//! Reads expressions.

use std::{iter::Peekable, str::Chars};

/// Most repetitions that are counted.
const MAX_COUNT: usize = 1_000;

/// A part of an expression.
#[derive(Clone, Debug)]
pub enum Node {
    /// A character.
    One(Set),
    /// A place between two.
    At(Place),
    /// One behind the other.
    All(Vec<Node>),
    /// The one or the other.
    Any(Box<Node>, Box<Node>),
    /// So many times; without end where no most is given.
    Repeat(Box<Node>, usize, Option<usize>),
}

/// Characters: those that one of the items has, or all others.
#[derive(Clone, Debug, Default)]
pub struct Set {
    items: Vec<Item>,
    is_negated: bool,
}

#[derive(Clone, Debug)]
enum Item {
    Range(char, char),
    /// A kind of characters, or all others.
    Kind(fn(char) -> bool, bool),
}

/// What is on both sides of a place.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The line begins.
    Start,
    /// The line ends.
    End,
    /// A word begins or ends, or does not.
    Edge(bool),
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

impl Place {
    pub fn holds(self, before: Option<char>, behind: Option<char>) -> bool {
        match self {
            Self::Start => before.is_none(),
            Self::End => behind.is_none(),
            Self::Edge(wanted) => (before.is_some_and(is_word) != behind.is_some_and(is_word)) == wanted,
        }
    }
}

impl Item {
    fn has(&self, c: char) -> bool {
        match self {
            Self::Range(first, last) => (*first..=*last).contains(&c),
            Self::Kind(is, wanted) => is(c) == *wanted,
        }
    }
}

impl Set {
    fn of(item: Item) -> Node {
        Node::One(Self { items: vec![item], is_negated: false })
    }

    pub fn holds(&self, c: char, ignore_case: bool) -> bool {
        let has = |c: char| self.items.iter().any(|item| item.has(c));
        let found = has(c) || (ignore_case && (c.to_lowercase().any(has) || c.to_uppercase().any(has)));
        found != self.is_negated
    }
}

/// What is left of an expression.
pub struct Parser<'a>(Peekable<Chars<'a>>);

impl Parser<'_> {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Node, String> {
        let mut parser = Parser(text.chars().peekable());
        let node = parser.alternatives()?;
        if parser.0.next().is_some() {
            return Err("a `)` closes nothing".into());
        }
        Ok(node)
    }

    fn take(&mut self, c: char) -> bool {
        self.0.next_if_eq(&c).is_some()
    }

    fn alternatives(&mut self) -> Result<Node, String> {
        let mut nodes = Vec::new();
        while let Some(c) = self.0.next_if(|c| !matches!(c, '|' | ')')) {
            let one = self.one(c)?;
            nodes.push(self.repeated(one)?);
        }
        let node = Node::All(nodes);
        if self.take('|') {
            return Ok(Node::Any(Box::new(node), Box::new(self.alternatives()?)));
        }
        Ok(node)
    }

    fn one(&mut self, c: char) -> Result<Node, String> {
        Ok(match c {
            '(' => {
                if self.take('?') && !self.take(':') {
                    return Err("of groups with `?` there is only `(?:…)`".into());
                }
                let node = self.alternatives()?;
                if !self.take(')') {
                    return Err("a `(` is not closed".into());
                }
                node
            }
            '[' => self.set()?,
            '.' => Node::One(Set { items: Vec::new(), is_negated: true }),
            '^' => Node::At(Place::Start),
            '$' => Node::At(Place::End),
            '*' | '+' | '?' | '{' => return Err(format!("`{c}` has nothing in front of it to repeat")),
            '\\' => match self.0.next() {
                Some('b') => Node::At(Place::Edge(true)),
                Some('B') => Node::At(Place::Edge(false)),
                escaped => Set::of(escape(escaped)?),
            },
            c => Set::of(Item::Range(c, c)),
        })
    }

    fn repeated(&mut self, mut node: Node) -> Result<Node, String> {
        while let Some(c) = self.0.next_if(|c| matches!(c, '*' | '+' | '?' | '{')) {
            let (min, max) = match c {
                '*' => (0, None),
                '+' => (1, None),
                '?' => (0, Some(1)),
                _ => self.counts()?,
            };
            // Whether it takes little or much is the same to whoever asks only where it begins.
            self.take('?');
            node = Node::Repeat(Box::new(node), min, max);
        }
        Ok(node)
    }

    /// What stands behind `{`.
    fn counts(&mut self) -> Result<(usize, Option<usize>), String> {
        let min = self.count().ok_or("a `{` needs a number behind it, or `\\` before it")?;
        let max = if self.take(',') { self.count() } else { Some(min) };
        if !self.take('}') {
            return Err("a `{` is not closed".into());
        }
        if min > MAX_COUNT || max.is_some_and(|max| max > MAX_COUNT || max < min) {
            return Err(format!("a count is not between 0 and {MAX_COUNT}, or its end before its start"));
        }
        Ok((min, max))
    }

    fn count(&mut self) -> Option<usize> {
        let mut digits = String::new();
        while let Some(digit) = self.0.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        // One that is too large for a number is too large all the same.
        (!digits.is_empty()).then(|| digits.parse().unwrap_or(usize::MAX))
    }

    /// What stands behind `[`.
    fn set(&mut self) -> Result<Node, String> {
        let mut set = Set { items: Vec::new(), is_negated: self.take('^') };
        loop {
            let c = self.0.next().ok_or("a `[` is not closed")?;
            let item = match c {
                // In front it stands for itself.
                ']' if !set.items.is_empty() => return Ok(Node::One(set)),
                '\\' => escape(self.0.next())?,
                c => Item::Range(c, c),
            };
            let Item::Range(first, _) = item else {
                set.items.push(item);
                continue;
            };
            if !self.take('-') {
                set.items.push(item);
                continue;
            }
            // At the end a dash stands for itself.
            if self.0.peek() == Some(&']') {
                set.items.extend([item, Item::Range('-', '-')]);
                continue;
            }
            let last = match self.0.next() {
                Some('\\') => escape(self.0.next())?,
                c => c.map(|c| Item::Range(c, c)).ok_or("a `[` is not closed")?,
            };
            match last {
                Item::Range(last, _) if last >= first => set.items.push(Item::Range(first, last)),
                _ => return Err(format!("the range that begins at `{first}` does not end behind it")),
            }
        }
    }
}

fn escape(c: Option<char>) -> Result<Item, String> {
    let one = |c: char| Item::Range(c, c);
    Ok(match c.ok_or("a `\\` has nothing behind it")? {
        'd' => Item::Kind(is_digit, true),
        'D' => Item::Kind(is_digit, false),
        'w' => Item::Kind(is_word, true),
        'W' => Item::Kind(is_word, false),
        's' => Item::Kind(char::is_whitespace, true),
        'S' => Item::Kind(char::is_whitespace, false),
        't' => one('\t'),
        'n' => one('\n'),
        'r' => one('\r'),
        c if c.is_ascii_alphanumeric() => return Err(format!("there is no `\\{c}` here")),
        c => one(c),
    })
}
