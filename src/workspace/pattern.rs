//! Regular expressions for lines: small, and linear in the text whatever the expression is.
//!
//! There are `.`, `[a-z]`, `[^a-z]`, `\d` `\w` `\s` and their opposites, `\b` `\B`, `^` `$`, groups, `|`, and
//! `*` `+` `?` `{n}` `{n,}` `{n,m}`. A crate that knows the rest of the language costs five times as many bytes.
//! An expression becomes a list of steps; all ways through it are followed side by side, so none is tried twice.

mod parse;
#[cfg(test)]
mod tests;

use parse::{Node, Parser, Place, Set};

/// Most steps of an expression: counted repetitions make many.
const MAX_STEPS: usize = 1_000;

/// An expression, ready to look for.
#[derive(Debug)]
pub struct Pattern {
    steps: Vec<Step>,
    ignore_case: bool,
}

#[derive(Debug)]
enum Step {
    /// Takes a character.
    One(Set),
    /// Goes on where the place is right.
    At(Place),
    /// Goes on at both.
    Fork(usize, usize),
    /// Goes on somewhere else.
    Go(usize),
    /// Has found it.
    Done,
}

/// How many steps searches may take together.
pub struct Work {
    /// How many are left.
    pub left: u64,
}

/// A search took more steps than it might.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it, for whoever wrote it.
    pub fn parse(text: &str, ignore_case: bool) -> Result<Self, String> {
        let mut pattern = Self { steps: Vec::new(), ignore_case };
        pattern.add(&Parser::parse(text)?)?;
        pattern.push(Step::Done)?;
        Ok(pattern)
    }

    /// Where the match begins that ends first.
    ///
    /// # Errors
    /// When no work is left.
    pub fn find(&self, line: &str, work: &mut Work) -> Result<Option<usize>, TooMuch> {
        let mut chars = line.char_indices();
        let (mut before, mut round) = (None, 0);
        // Steps to go on at, steps that wait for a character, and where their ways began.
        let (mut open, mut waiting, mut stack) = (Vec::new(), Vec::new(), Vec::new());
        let mut reached = vec![0; self.steps.len()];
        loop {
            let here = chars.next();
            let behind = here.map(|(_, c)| c);
            round += 1;
            // A way that began earlier comes first.
            open.push((0, here.map_or(line.len(), |(at, _)| at)));
            for (first, start) in open.drain(..) {
                stack.push(first);
                while let Some(step) = stack.pop() {
                    work.left = work.left.checked_sub(1).ok_or(TooMuch)?;
                    let (Some(reached), Some(what)) = (reached.get_mut(step), self.steps.get(step)) else {
                        continue;
                    };
                    if std::mem::replace(reached, round) == round {
                        continue;
                    }
                    match what {
                        Step::One(set) => waiting.push((step, start, set)),
                        Step::At(place) if place.holds(before, behind) => stack.push(step + 1),
                        Step::At(_) => {}
                        Step::Fork(one, other) => stack.extend([*other, *one]),
                        Step::Go(step) => stack.push(*step),
                        Step::Done => return Ok(Some(start)),
                    }
                }
            }
            let Some(c) = behind else { return Ok(None) };
            let goes_on = waiting.drain(..).filter(|(_, _, set)| set.holds(c, self.ignore_case));
            open.extend(goes_on.map(|(step, start, _)| (step + 1, start)));
            before = Some(c);
        }
    }

    fn push(&mut self, step: Step) -> Result<usize, String> {
        if self.steps.len() == MAX_STEPS {
            return Err("it repeats too much".into());
        }
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }

    /// A step that is known later.
    fn reserve(&mut self) -> Result<usize, String> {
        self.push(Step::Done)
    }

    fn set(&mut self, at: usize, step: Step) {
        if let Some(place) = self.steps.get_mut(at) {
            *place = step;
        }
    }

    fn add(&mut self, node: &Node) -> Result<(), String> {
        match node {
            Node::One(set) => self.push(Step::One(set.clone())).map(drop),
            Node::At(place) => self.push(Step::At(*place)).map(drop),
            Node::All(nodes) => nodes.iter().try_for_each(|node| self.add(node)),
            Node::Any(one, other) => {
                let fork = self.reserve()?;
                self.add(one)?;
                let end = self.reserve()?;
                self.set(fork, Step::Fork(fork + 1, end + 1));
                self.add(other)?;
                self.set(end, Step::Go(self.steps.len()));
                Ok(())
            }
            Node::Repeat(node, min, max) => {
                for _ in 0..*min {
                    self.add(node)?;
                }
                let mut forks = Vec::new();
                for _ in *min..max.unwrap_or(min + 1) {
                    forks.push(self.reserve()?);
                    self.add(node)?;
                }
                if let (None, Some(fork)) = (max, forks.first()) {
                    self.push(Step::Go(*fork))?;
                }
                let behind = self.steps.len();
                forks.into_iter().for_each(|fork| self.set(fork, Step::Fork(fork + 1, behind)));
                Ok(())
            }
        }
    }
}
