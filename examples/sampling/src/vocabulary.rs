//! The characters that a model's logits are of.

use std::path::Path;

use anyhow::Context;

/// Reads a `vocab.txt`: line n, from 0 on, is the character of logit n. `\n`, `\s` and `\\` stand for
/// a line break, a space and a backslash.
///
/// # Errors
/// The file cannot be read, or a line is not one character.
pub(crate) fn read_vocabulary(path: &Path) -> anyhow::Result<Vec<char>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let character = |(number, line): (usize, &str)| {
        character(line).with_context(|| {
            format!("{}, line {}: expected one character", path.display(), number + 1)
        })
    };
    text.lines().enumerate().map(character).collect()
}

/// The character that a line stands for; none where it is not one character.
fn character(line: &str) -> Option<char> {
    let mut chars = line.chars();
    let character = match (chars.next()?, line) {
        (_, r"\n") => return Some('\n'),
        (_, r"\s") => return Some(' '),
        (_, r"\\") => return Some('\\'),
        (character, _) => character,
    };
    chars.next().is_none().then_some(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_character() {
        let lines = [r"\n", r"\s", r"\\", "a", "×", "", "ab", r"\t"];
        let expected = [Some('\n'), Some(' '), Some('\\'), Some('a'), Some('×'), None, None, None];
        assert_eq!(lines.map(character), expected);
    }
}
