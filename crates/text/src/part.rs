//! Parts of a generated page that another command measures, and that its generator keeps.

/// A part that `command` writes into a page, between two comments of Markdown.
#[derive(Copy, Clone)]
pub struct Part {
    /// The command.
    pub command: &'static str,
}

impl Part {
    fn mark(self, which: &str) -> String {
        format!("<!-- {}: {which} -->\n", self.command)
    }

    /// The place of the part, empty.
    pub fn place(self) -> String {
        self.mark("begin") + &self.mark("end")
    }

    /// The text there; nothing if the page has no such place.
    pub fn of(self, page: &str) -> Option<&str> {
        let (_, rest) = page.split_once(&self.mark("begin"))?;
        rest.split_once(&self.mark("end")).map(|(text, _)| text)
    }

    /// `page` with `text` there; as it is without the place.
    pub fn put(self, page: &str, text: &str) -> String {
        match (page.split_once(&self.mark("begin")), page.split_once(&self.mark("end"))) {
            (Some((before, _)), Some((_, after))) if before.len() + after.len() < page.len() => {
                format!("{before}{}\n{}\n{}{after}", self.mark("begin"), text.trim_matches('\n'), self.mark("end"))
            }
            _ => page.to_owned(),
        }
    }

    /// `fresh` with the part of an earlier page.
    pub fn keep(self, earlier: &str, fresh: &str) -> String {
        match self.of(earlier).map(|text| text.trim_matches('\n')) {
            None | Some("") => fresh.to_owned(),
            Some(text) => self.put(fresh, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn a_part_outlives_its_page() {
        let part = Part { command: "measure" };
        let page = format!("a\n{}b\n", part.place());
        assert_eq!(part.keep(&page, &page), page);
        let full = part.put(&page, "1\n2");
        assert_eq!(full, "a\n<!-- measure: begin -->\n\n1\n2\n<!-- measure: end -->\nb\n");
        assert_eq!(part.of(&full), Some("\n1\n2\n"));
        assert_eq!(part.put(&full, "1\n2"), full);
        assert_eq!(part.keep(&full, &page.replace("\nb\n", "\nc\n")), full.replace("\nb\n", "\nc\n"));
        assert_eq!(part.put("no place", "1"), "no place");
        assert_eq!(part.of("no place"), None);
    }
}
