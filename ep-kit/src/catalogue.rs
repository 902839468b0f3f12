//! The operator catalogue of an EP, made from its kernel tables in const evaluation.

use crate::kernel::Kernel;
use ortolan_ep_abi::text::CatalogueRow;

/// Number of rows in all families.
pub const fn row_count(families: &[&[Kernel]]) -> usize {
    let (mut n, mut k) = (0, 0);
    while k < families.len() {
        n += families[k].len();
        k += 1;
    }
    n
}

/// The catalogue's rows, in the tables' order. N is [`row_count`].
pub const fn rows<const N: usize>(families: &[&[Kernel]]) -> [CatalogueRow; N] {
    let mut rows = [EMPTY; N];
    let (mut n, mut k) = (0, 0);
    while k < families.len() {
        let mut i = 0;
        while i < families[k].len() {
            rows[n] = row(&families[k][i]);
            n += 1;
            i += 1;
        }
        k += 1;
    }
    assert!(n == N, "N is row_count(families)");
    rows
}

const EMPTY: CatalogueRow = CatalogueRow { domain: "", op: "", since: 0, until: 0, types: &[], digest: 0, limits: &[] };

const fn row(kernel: &Kernel) -> CatalogueRow {
    CatalogueRow {
        domain: kernel.domain,
        op: kernel.op,
        since: kernel.since.0,
        until: kernel.since.1,
        types: kernel.types,
        digest: 0,
        limits: kernel.limits,
    }
}

/// The catalogue of some families as `&'static str`, for `export_ep!`: `kernel_catalogue!(FAMILIES)`, where FAMILIES is
/// a const of type `&[&[Kernel]]`.
#[macro_export]
macro_rules! kernel_catalogue {
    ($families:expr) => {{
        const FAMILIES: &[&[$crate::Kernel]] = $families;
        const COUNT: usize = $crate::catalogue::row_count(FAMILIES);
        const ROWS: [$crate::ortolan_ep_abi::text::CatalogueRow; COUNT] = $crate::catalogue::rows(FAMILIES);
        $crate::ortolan_ep_abi::catalogue!(&ROWS)
    }};
}
