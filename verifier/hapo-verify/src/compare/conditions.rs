//! Conditions as people write them: `x < -1 \\text{ or } x > 1` is the union of two intervals. Used where an answer was
//! looked for, and never with Math-Verify's own extraction, which reads a list of two relations there and takes no
//! relation for an interval.

use super::reals::{intersection, merged, same_pieces};
use super::relations::{Solved, proportional, same_unknown, solved, turned};
use super::symbols::{plain_symbols, without_case};
use crate::cursor::{Cursor, replaced};
use crate::expr::{Expr, Func, Interval};
use crate::normalise::{CleanUp, normalise};
use crate::parse::{self, Style};

/// Longest text that is read as a condition, in bytes.
const MAX_TEXT: usize = 500;

/// Most relations of one condition.
const MAX_PARTS: usize = 12;

/// True for texts that name the same reals, a condition and a set or two conditions, or are a relation and its multiple.
pub(crate) fn same_condition(gold: &str, answer: &str, style: Style) -> bool {
    if gold.len().max(answer.len()) > MAX_TEXT {
        return false;
    }
    let may_be = |it: &str| is_condition(it) || it.contains(';');
    if (may_be(gold) || may_be(answer)) && is_met_by_the_same(gold, answer, style) {
        return true;
    }
    let relates = |it: &str| it.contains('=') || is_condition(it);
    relates(gold) && relates(answer) && is_multiple(gold, answer, style)
}

fn is_met_by_the_same(gold: &str, answer: &str, style: Style) -> bool {
    let Some((unknown, set)) = read(answer, style) else { return false };
    let Some((gold_unknown, gold_set)) = read(gold, style) else { return false };
    let is_about = unknown.is_some() || gold_unknown.is_some() || answer.contains(';');
    is_about && same_unknown(gold_unknown, unknown).is_some() && same_pieces(&gold_set, &set)
}

/// True if one relation is a multiple of the other, as `2x + 4y < 6` is of `x + 2y < 3`. What is still to be solved for
/// its only unknown is no answer where the gold answer is solved.
fn is_multiple(gold: &str, answer: &str, style: Style) -> bool {
    let (Some(Expr::Rel(op, a)), Some(Expr::Rel(other, b))) =
        (meaning(&marked(gold), style), meaning(&marked(answer), style))
    else {
        return false;
    };
    let difference = |(a, b): (Expr, Expr)| a.plus(b.negated());
    let is_solved = solved(&Expr::Rel(op, a.clone())).is_some();
    let (a, b) = (difference(*a), difference(*b));
    let (ours, theirs) = (plain_symbols(&a), plain_symbols(&b));
    let are_same = ours.len() == theirs.len() && ours.iter().all(|it| theirs.contains(it));
    if is_solved || ours.is_empty() || ours.len() > 8 || !are_same {
        return false;
    }
    match proportional(&a, &b, &ours) {
        Some(sign) => other == if sign.is_lt() { turned(op) } else { op },
        None => false,
    }
}

/// True if a text holds the sign of an inequality, or bars.
fn is_condition(text: &str) -> bool {
    const COMMANDS: [&str; 8] =
        ["\\le", "\\ge", "\\ne", "\\lt", "\\gt", "\\lvert", "\\vert", "\\not"];
    text.contains(['<', '>', '|', '≤', '≥', '≠', '≦', '≧', '⩽', '⩾'])
        || COMMANDS.iter().any(|it| text.contains(it))
}

/// How a relation is joined to the one before it; the stronger one last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Joint {
    Comma,
    And,
    Or,
}

fn read(text: &str, style: Style) -> Option<Solved> {
    let marked = marked(text);
    let parts = parts(&marked);
    if parts.is_empty() || parts.len() > MAX_PARTS {
        return None;
    }
    let mut all = Vec::with_capacity(parts.len());
    let mut unknown = None;
    for (joint, part) in &parts {
        let relation = meaning(part, style)?;
        let (about, set) = solved(&relation)?;
        // z is a complex number, and |z| its size.
        let is_z = about.as_ref().and_then(Expr::symbol) == Some("z");
        if is_z && relation.any(&mut |it| matches!(it, Expr::Call(Func::Abs, _))) {
            return None;
        }
        // A list of sets is no condition; their union is.
        if about.is_none() && parts.iter().skip(1).any(|it| it.0 != Joint::Or) {
            return None;
        }
        unknown = if all.is_empty() { about } else { same_unknown(unknown, about)? };
        all.push((*joint, set));
    }
    Some((unknown, joined(all)?))
}

/// One relation; where meaning is read, no unit or word behind it is dropped.
fn meaning(text: &str, style: Style) -> Option<Expr> {
    let clean_up = match style {
        Style::Peer => CleanUp::DEFAULT,
        Style::Meant => CleanUp::KEEPS_UNITS,
    };
    let value = parse::latex(&normalise(text, clean_up), style).ok()?;
    let [value] = without_case([&value]);
    Some(value)
}

/// The union of what `or` joins; `and` binds closer. Commas stand for the word that is there, and where there is none
/// for `and`, unless nothing meets all of the relations.
fn joined(all: Vec<(Joint, Vec<Interval>)>) -> Option<Vec<Interval>> {
    let has = |joint| all.iter().skip(1).any(|it| it.0 == joint);
    let comma = if has(Joint::Or) { Joint::Or } else { Joint::And };
    let guessed = all.len() > 1 && !has(Joint::Or) && !has(Joint::And);
    let mut union: Vec<Interval> = Vec::new();
    let mut group: Option<Vec<Interval>> = None;
    for (joint, set) in &all {
        let joint = if *joint == Joint::Comma { comma } else { *joint };
        group = Some(match group.take() {
            Some(before) if joint == Joint::And => intersection(&before, set)?,
            Some(before) => {
                union.extend(before);
                set.clone()
            }
            None => set.clone(),
        });
    }
    union.extend(group?);
    if guessed && union.is_empty() {
        union = all.into_iter().flat_map(|it| it.1).collect();
    }
    merged(union)
}

/// Marks of `or` and `and` in a text.
const OR: char = '\u{1}';
const AND: char = '\u{2}';

/// `text` without dollar signs and spacing, words and signs that join relations as marks.
fn marked(text: &str) -> String {
    replaced(text.trim().trim_end_matches('.'), |cursor, out| {
        if cursor.eat("\\").is_none() {
            match cursor.letters() {
                "or" => out.push(OR),
                "and" => out.push(AND),
                "" => return cursor.eat("$"),
                word => out.push_str(word),
            }
            return Some(());
        }
        match cursor.letters() {
            // A spacing or a delimiter of one character; braces are a set's.
            "" => {
                let sign = cursor.one(|_| true).filter(|it| ["{", "}", "|", "%"].contains(it));
                out.extend(sign.into_iter().flat_map(|it| ["\\", it]));
            }
            "lor" | "vee" | "cup" => out.push(OR),
            "land" | "wedge" => out.push(AND),
            "quad" | "qquad" => out.push(' '),
            command => match joining_text(command, cursor) {
                Some(mark) => out.push(mark),
                None => out.extend(["\\", command]),
            },
        }
        Some(())
    })
}

/// The mark of `\text{ or }` and its kin.
fn joining_text(command: &str, cursor: &mut Cursor<'_>) -> Option<char> {
    const TEXT: [&str; 6] = ["text", "textrm", "textnormal", "mathrm", "mbox", "textbf"];
    let mut inner = *cursor;
    inner.eat("{").filter(|()| TEXT.contains(&command))?;
    let mark = match inner.take_while(|c| c != '}').trim() {
        "or" => OR,
        "and" => AND,
        _ => return None,
    };
    inner.eat("}")?;
    *cursor = inner;
    Some(mark)
}

/// The text at its joints outside of brackets. A semicolon inside of brackets parts like a comma.
fn parts(text: &str) -> Vec<(Joint, String)> {
    let mut all = vec![(Joint::Comma, String::new())];
    let mut level = 0_i32;
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => level += 1,
            ')' | ']' | '}' => level -= 1,
            _ => {}
        }
        let joint = match c {
            ',' | ';' => Some(Joint::Comma),
            AND => Some(Joint::And),
            OR => Some(Joint::Or),
            _ => None,
        };
        let (before, part) = all.last_mut().expect("there is always a part");
        match joint {
            // "a, or b": the word says how.
            Some(joint) if level == 0 && part.trim().is_empty() => *before = joint.max(*before),
            Some(joint) if level == 0 => all.push((joint, String::new())),
            Some(_) if c == ';' => part.push(','),
            _ => part.push(c),
        }
    }
    all.retain(|it| !it.1.trim().is_empty());
    all
}

/// True if one text joins inequalities by "or" and the other by "and".
pub(crate) fn are_joined_otherwise(gold: (&Expr, &str), answer: (&Expr, &str)) -> bool {
    let joints = |(value, text): (&Expr, &str)| {
        let is_inequality = |it: &Expr| it.is_relation() && !it.is_equation();
        let Expr::Set(items) = value else { return None };
        let marked = items.iter().any(is_inequality).then(|| marked(text))?;
        Some((marked.contains(OR), marked.contains(AND)))
    };
    matches!(
        (joints(gold), joints(answer)),
        (Some((true, false)), Some((false, true))) | (Some((false, true)), Some((true, false)))
    )
}

/// True if numbers alone answer an inequality, as `1, 3` does `1 < x < 3` for Math-Verify.
pub(crate) fn is_list_for_inequality(gold: &Expr, answer: &Expr) -> bool {
    let numbers = match answer {
        Expr::Rel(_, sides) => matches!(sides.1, Expr::Set(_)),
        it => matches!(it, Expr::Set(_) | Expr::Tuple(_)),
    };
    gold.is_relation() && !gold.is_equation() && numbers
}
