//! Arithmetic in values: `(4k+8)*2`, `2*$pagesize`.
//!
//! Numbers are kept exactly, in millionths; `/` of two whole numbers is a whole number, as in fio and bc. Depth and
//! size are limited, so that no text can make the evaluator fail in any other way than with a message.

/// Millionths in one.
const ONE: i128 = 1_000_000;
/// Parentheses and signs that may be open at once.
const MAX_DEPTH: u32 = 64;

/// The factor of a unit suffix, or nothing for an unknown unit.
pub(super) type Unit<'a> = &'a dyn Fn(&str) -> Option<i128>;

/// Why an expression has no value, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// One sentence without a full stop.
    pub(super) message: String,
    /// Byte at which it was noticed.
    pub(super) at: usize,
}

/// Value of an expression.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Worth {
    /// Whole part: fractions are cut.
    pub(super) value: i128,
    /// Whether any number in it carried a unit.
    pub(super) any_unit: bool,
}

/// The value of all of `text`.
pub(super) fn evaluate(text: &str, unit: Unit<'_>) -> Result<Worth, Failure> {
    let mut parser = Parser { text, at: 0, depth: 0, unit, any_unit: false };
    let number = parser.sum()?;
    parser.blanks();
    if parser.at < text.len() {
        return Err(parser.fail("an operator is missing"));
    }
    Ok(Worth { value: number.millionths / ONE, any_unit: parser.any_unit })
}

#[derive(Copy, Clone)]
struct Number {
    millionths: i128,
    whole: bool,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    unit: Unit<'a>,
    any_unit: bool,
}

impl Parser<'_> {
    fn fail(&self, message: &str) -> Failure {
        Failure { message: message.to_owned(), at: self.at }
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The next byte behind blanks, if it is one of these; it is taken.
    fn operator(&mut self, accepted: &[u8]) -> Option<u8> {
        self.blanks();
        let byte = *self.text.as_bytes().get(self.at)?;
        accepted.contains(&byte).then(|| {
            self.at += 1;
            byte
        })
    }

    fn sum(&mut self) -> Result<Number, Failure> {
        let mut left = self.product()?;
        while let Some(operator) = self.operator(b"+-") {
            let right = self.product()?;
            let sum = match operator {
                b'+' => left.millionths.checked_add(right.millionths),
                _ => left.millionths.checked_sub(right.millionths),
            };
            let millionths = sum.ok_or_else(|| self.too_large())?;
            left = Number { millionths, whole: left.whole && right.whole };
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Number, Failure> {
        let mut left = self.power()?;
        while let Some(operator) = self.operator(b"*/%") {
            let right = self.power()?;
            left = match operator {
                b'*' => self.times(left, right)?,
                _ if right.millionths == 0 => return Err(self.fail("division by zero")),
                b'%' => Number { millionths: left.millionths % right.millionths, whole: left.whole && right.whole },
                _ if left.whole && right.whole => {
                    Number { millionths: left.millionths / right.millionths * ONE, whole: true }
                }
                _ => {
                    let millionths = left.millionths.checked_mul(ONE).ok_or_else(|| self.too_large())?;
                    Number { millionths: millionths / right.millionths, whole: false }
                }
            };
        }
        Ok(left)
    }

    fn times(&self, left: Number, right: Number) -> Result<Number, Failure> {
        let product = left.millionths.checked_mul(right.millionths).ok_or_else(|| self.too_large())?;
        Ok(Number { millionths: product / ONE, whole: left.whole && right.whole })
    }

    fn power(&mut self) -> Result<Number, Failure> {
        let base = self.signed()?;
        if self.operator(b"^").is_none() {
            return Ok(base);
        }
        let exponent = self.deeper(Parser::power)?;
        if !exponent.whole || !(0..=64 * ONE).contains(&exponent.millionths) {
            return Err(self.fail("an exponent is a whole number from 0 to 64"));
        }
        let mut result = Number { millionths: ONE, whole: true };
        for _ in 0..exponent.millionths / ONE {
            result = self.times(result, base)?;
        }
        Ok(result)
    }

    fn signed(&mut self) -> Result<Number, Failure> {
        match self.operator(b"+-") {
            Some(b'-') => {
                let number = self.deeper(Parser::signed)?;
                Ok(Number { millionths: -number.millionths, ..number })
            }
            Some(_) => self.deeper(Parser::signed),
            None if self.operator(b"(").is_some() => {
                let inside = self.deeper(Parser::sum)?;
                if self.operator(b")").is_none() {
                    return Err(self.fail("a closing parenthesis is missing"));
                }
                Ok(inside)
            }
            None => self.number(),
        }
    }

    fn deeper(&mut self, part: fn(&mut Self) -> Result<Number, Failure>) -> Result<Number, Failure> {
        if self.depth == MAX_DEPTH {
            return Err(self.fail("the expression is nested too deeply"));
        }
        self.depth += 1;
        let number = part(self);
        self.depth -= 1;
        number
    }

    fn number(&mut self) -> Result<Number, Failure> {
        let start = self.at;
        let rest = &self.text[start..];
        let (mut millionths, length, whole) = match rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            Some(digits) => {
                let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
                let value = i128::from_str_radix(&digits[..end], 16).ok().and_then(|value| value.checked_mul(ONE));
                (value, end + 2, true)
            }
            None => decimal(rest),
        };
        if length == 0 {
            return Err(self.fail("a number is missing"));
        }
        self.at += length;
        let rest = &self.text[self.at..];
        let suffix = &rest[..rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len())];
        if !suffix.is_empty() {
            let factor = (self.unit)(suffix).ok_or_else(|| self.fail(&format!("`{suffix}` is not a unit")))?;
            self.any_unit = true;
            millionths = millionths.and_then(|value| value.checked_mul(factor));
            self.at += suffix.len();
        }
        // 2^63 times the largest unit is far below this: whatever is larger is a slip, and products stay exact.
        let millionths = millionths.filter(|value| *value <= i128::from(i64::MAX) * ONE);
        millionths
            .map(|millionths| Number { millionths, whole })
            .ok_or_else(|| Failure { message: "the number is too large".to_owned(), at: start })
    }

    fn too_large(&self) -> Failure {
        self.fail("the result is too large")
    }
}

/// A decimal number at the beginning of `text` in millionths, its length, and whether it has no fraction.
fn decimal(text: &str) -> (Option<i128>, usize, bool) {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let nr_whole = digits(text);
    let whole = if nr_whole == 0 { Some(0) } else { text[..nr_whole].parse::<i128>().ok() };
    let whole = whole.and_then(|value| value.checked_mul(ONE));
    let Some(fraction) = text[nr_whole..].strip_prefix('.') else { return (whole, nr_whole, true) };
    let nr_fraction = digits(fraction);
    if nr_fraction == 0 {
        return (whole, nr_whole, true);
    }
    let kept = &fraction[..nr_fraction.min(6)];
    let millionths = kept.parse::<i128>().unwrap_or(0) * 10_i128.pow(6 - kept.len() as u32);
    (whole.map(|value| value + millionths), nr_whole + 1 + nr_fraction, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kilo(suffix: &str) -> Option<i128> {
        match suffix {
            "k" => Some(1024),
            "m" => Some(1024 * 1024),
            _ => None,
        }
    }

    #[test]
    fn arithmetic_follows_the_usual_rules() {
        for (text, expected) in [
            ("8*4096", 32_768),
            ("(1m+4k)*2", 2 * (1024 * 1024 + 4096)),
            ("(8k/3k)*4k", 8192),
            ("8k*1.5", 12_288),
            ("7/2*2", 6),
            ("7.0/2*2", 7),
            ("10 % 4", 2),
            ("2^3^2", 512),
            ("-3+5", 2),
            ("-(2-5)", 3),
            ("0x10 + 1", 17),
            (".5*4", 2),
            (" 1 ", 1),
        ] {
            assert_eq!(evaluate(text, &kilo).map(|worth| worth.value), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_has_no_value_says_where() {
        for (text, message, at) in [
            ("1/0", "division by zero", 3),
            ("1 2", "an operator is missing", 2),
            ("(1", "a closing parenthesis is missing", 2),
            ("1+", "a number is missing", 2),
            ("3q", "`q` is not a unit", 1),
            ("2^-1", "an exponent is a whole number from 0 to 64", 4),
            ("9223372036854775807^9", "the result is too large", 21),
            ("99999999999999999999999999999999999999999999", "the number is too large", 0),
            ("1+ü", "a number is missing", 2),
        ] {
            let failure = evaluate(text, &kilo).expect_err(text);
            assert_eq!((failure.message.as_str(), failure.at), (message, at), "{text}");
        }
        let deep = "(".repeat(5000);
        assert_eq!(evaluate(&deep, &kilo).expect_err("deep").message, "the expression is nested too deeply");
    }
}
