//! Answers to a `claim` call: every asked node is claimed or rejected, exactly once.

use std::collections::HashMap;

use ortolan_ep_abi::codes::RejectCode;
use ortolan_ep_abi::raw;

use super::sentence;
use crate::error::codes;

/// Why an EP does not take a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Code of the closed list, `other(n)`, or one of the host's own.
    pub code: String,
    /// In the EP's words.
    pub sentence: String,
}

impl Rejection {
    pub(crate) fn host(code: crate::codes::Code, sentence: impl Into<String>) -> Rejection {
        Rejection { code: code.name().to_owned(), sentence: sentence.into() }
    }
}

/// Nodes that were claimed together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// In the order in which they were claimed.
    pub nodes: Vec<u32>,
    /// All or none.
    pub whole: bool,
    /// Of all of them, in ns; NaN is unknown.
    pub cost_ns: f64,
}

/// The answer about one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Index of its group.
    Claimed(usize),
    Rejected(Rejection),
}

/// All answers, in the order of the asked nodes.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    pub of: Vec<Answer>,
    pub groups: Vec<Group>,
}

/// Collects the answers during the call.
pub(crate) struct Claims {
    at: HashMap<u32, usize>,
    of: Vec<Option<Answer>>,
    groups: Vec<Group>,
    fault: Option<String>,
}

impl Claims {
    pub fn new(asked: &[u32]) -> Claims {
        Claims {
            at: asked.iter().enumerate().map(|(at, &node)| (node, at)).collect(),
            of: vec![None; asked.len()],
            groups: Vec::new(),
            fault: None,
        }
    }

    fn set(&mut self, node: u32, function: &str, answer: Answer) {
        match self.at.get(&node) {
            None => self.note(format!("{function}: node {node} was not asked about")),
            Some(&at) => match &mut self.of[at] {
                free @ None => *free = Some(answer),
                Some(Answer::Claimed(_)) => self.note(format!("{function}: node {node} was claimed already")),
                Some(Answer::Rejected(_)) => self.note(format!("{function}: node {node} was rejected already")),
            },
        }
    }

    /// The first fault makes all claims of this query void.
    fn note(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    /// # Safety
    /// The claim's node list is live.
    pub unsafe fn claim(&mut self, claim: &raw::Claim) {
        if claim.count as usize > self.of.len() {
            return self.note(format!("claim: {} nodes, and {} were asked about", claim.count, self.of.len()));
        }
        // SAFETY: the caller's promise.
        let nodes = unsafe { raw::slice(claim.nodes, claim.count as usize) };
        if nodes.len() != claim.count as usize {
            return self.note("claim: the node list is null".to_owned());
        }
        if nodes.is_empty() {
            return;
        }
        let group = self.groups.len();
        for &node in nodes {
            self.set(node, "claim", Answer::Claimed(group));
        }
        self.groups.push(Group {
            nodes: nodes.to_vec(),
            whole: claim.flags & raw::CLAIM_WHOLE != 0,
            cost_ns: if claim.cost_ns >= 0.0 { claim.cost_ns } else { f64::NAN },
        });
    }

    pub fn reject(&mut self, node: u32, code: u32, text: raw::Str) {
        let code = RejectCode::from_u32(code).map_or_else(|| format!("other({code})"), |c| c.as_str().to_owned());
        self.set(node, "reject", Answer::Rejected(Rejection { code, sentence: sentence(text) }));
    }

    /// The answers; nodes without one count as rejected, and after a fault all do.
    pub fn finish(self) -> Answers {
        if let Some(fault) = self.fault {
            let fault = Rejection::host(codes::EP_FAULT, fault);
            let answer = |a: Option<Answer>| match a {
                Some(Answer::Rejected(r)) => Answer::Rejected(r),
                _ => Answer::Rejected(fault.clone()),
            };
            return Answers { of: self.of.into_iter().map(answer).collect(), groups: Vec::new() };
        }
        let none = || Answer::Rejected(Rejection::host(codes::UNANSWERED, "the EP neither claimed nor rejected it"));
        Answers { of: self.of.into_iter().map(|a| a.unwrap_or_else(none)).collect(), groups: self.groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(c: &mut Claims, nodes: &[u32], cost_ns: f64) {
        let count = u32::try_from(nodes.len()).unwrap();
        // SAFETY: the list is live.
        unsafe { c.claim(&raw::Claim { nodes: nodes.as_ptr(), count, flags: raw::CLAIM_WHOLE, cost_ns }) };
    }

    fn codes_of(a: &Answers) -> Vec<&str> {
        let code = |a| match a {
            &Answer::Claimed(_) => "claimed",
            Answer::Rejected(r) => r.code.as_str(),
        };
        a.of.iter().map(code).collect()
    }

    #[test]
    fn each_node_gets_its_answer() {
        let mut c = Claims::new(&[4, 2, 9, 7]);
        claim(&mut c, &[9, 4], -3.0);
        claim(&mut c, &[], 1.0);
        c.reject(2, 3, raw::Str::new("X is int8"));
        let a = c.finish();
        assert_eq!(codes_of(&a), ["claimed", "dtype", "claimed", "unanswered"]);
        assert_eq!((a.groups.len(), a.groups[0].nodes.as_slice()), (1, &[9, 4][..]));
        assert!(a.groups[0].whole && a.groups[0].cost_ns.is_nan());
    }

    #[test]
    fn nonsense_makes_all_claims_void() {
        type Case = (&'static str, fn(&mut Claims));
        let cases: &[Case] = &[
            ("claim: node 5 was not asked about", |c| claim(c, &[5], 1.0)),
            ("claim: node 1 was claimed already", |c| claim(c, &[1], 1.0)),
            ("reject: node 1 was claimed already", |c| c.reject(1, 1, raw::Str::new(""))),
            ("claim: node 3 was rejected already", |c| claim(c, &[3], 1.0)),
            ("claim: 9 nodes, and 3 were asked about", |c| claim(c, &[2; 9], 1.0)),
            ("claim: the node list is null", |c| {
                let null = raw::Claim { nodes: std::ptr::null(), count: 1, flags: 0, cost_ns: 0.0 };
                // SAFETY: a null list is what is tried.
                unsafe { c.claim(&null) }
            }),
        ];
        for (text, wrong) in cases {
            let mut c = Claims::new(&[1, 2, 3]);
            claim(&mut c, &[1], 1.0);
            c.reject(3, 99, raw::Str::new("no"));
            wrong(&mut c);
            let a = c.finish();
            assert_eq!(codes_of(&a), ["ep-fault", "ep-fault", "other(99)"], "{text}");
            assert_eq!(a.of[0], Answer::Rejected(Rejection::host(codes::EP_FAULT, *text)));
            assert!(a.groups.is_empty());
        }
    }
}
