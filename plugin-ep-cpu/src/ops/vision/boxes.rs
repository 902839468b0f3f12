//! Non-maximum suppression: from the best box on, each is kept unless it overlaps one that was kept.
//!
//! Each class of each image has a row of the scratch memory: how many boxes it keeps, their numbers by falling score, and
//! the corners and areas of those that are kept, side by side, so that a box is compared with many at once.

use crate::ops::float::agree;
use crate::ops::{Cpu, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// Numbers of a kept box: two corners and an area.
const SIDES: usize = 5;

pub(super) struct Suppression {
    isa: Isa,
    /// Boxes are centre and size, else two opposite corners, y before x.
    centred: bool,
}

/// Images, classes, boxes.
#[derive(Default)]
pub(super) struct Bound {
    images: usize,
    classes: usize,
    boxes: usize,
}

impl Bound {
    fn row(&self) -> usize {
        1 + self.boxes * (1 + SIDES)
    }
}

impl Op for Suppression {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (i, name) in [(0, "boxes"), (1, "scores")] {
            let rank = node.needs(i)?.rank();
            if rank != 3 {
                return Err(Reject::rank(format!("input {i} ({name}) has rank {rank}, 3 is needed")));
            }
        }
        match node.int("center_point_box")? {
            form @ 0..=1 => Ok(Suppression { isa: Cpu::of(node).isa, centred: form == 1 }),
            form => Err(Reject::attribute(format!("attribute center_point_box = {form} is neither 0 nor 1"))),
        }
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        // Sorting, and comparing with a hundred boxes or so.
        Cost::ns(cost::moving(node).ns + node.input(1).map_or(f64::NAN, |scores| scores.elements() * 30.0))
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let (boxes, scores) = (shapes.input(0), shapes.input(1));
        let (&[images, count, four], &[_, classes, _]) = (boxes, scores) else {
            return Err(Fault::data("boxes and scores have not rank 3"));
        };
        *bound = Bound { images: size(images), classes: size(classes), boxes: size(count) };
        if u32::try_from(bound.boxes).is_err() {
            return Err(Fault::data(format!("{count} boxes are more than can be counted")));
        }
        agree("the last axis of input 0 (boxes)", size(four), 4)?;
        agree("input 1 (scores)", shapes.input_len(1), bound.images * bound.classes * bound.boxes)?;
        for input in (2..5).filter(|&i| shapes.has(i)) {
            if shapes.input_len(input) > 1 {
                return Err(Fault::data(format!("input {input} has {} elements, not one", shapes.input_len(input))));
            }
        }
        Ok(())
    }

    fn scratch(&self, bound: &Bound, _: usize) -> usize {
        let rows = (bound.images * bound.classes).saturating_mul(bound.row());
        rows.saturating_mul(size_of::<u32>())
    }
}

pub(super) fn suppress(op: &Suppression, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (boxes, scores) = (args.input::<f32>(0), args.input::<f32>(1));
    let one = |input: usize| args.input_if::<f32>(input).and_then(|x| x.first().copied());
    let most = args.input_if::<i64>(2).and_then(|x| x.first().copied()).map_or(0, size);
    let overlap = one(3).unwrap_or(0.0);
    if !(0.0..=1.0).contains(&overlap) {
        return Err(Fault::data(format!("input 3 (iou_threshold) is {overlap}, not between 0 and 1")));
    }
    let (least, count, row) = (one(4), bound.boxes, bound.row());
    let rows = &mut args.scratch::<u32>()[..bound.images * bound.classes * row];
    split::rows(args.par(), rows, row, 1, |_, first, rows| {
        for (k, row) in rows.chunks_exact_mut(row).enumerate() {
            let image = (first + k) / bound.classes;
            let boxes = &boxes[image * count * 4..][..count * 4];
            let scores = &scores[(first + k) * count..][..count];
            let class = Class { op, boxes, scores, least, overlap };
            row[0] = class.keep(most, &mut row[1..]);
        }
    })?;
    let kept: usize = rows.iter().step_by(row).map(|&kept| kept as usize).sum();
    let kept_rows: &[u32] = rows;
    let y = args.emit::<i64>(0, &[i64::try_from(kept).unwrap_or(i64::MAX), 3])?;
    let places = kept_rows.chunks_exact(row).enumerate().flat_map(|(at, row)| {
        let (image, class) = ((at / bound.classes) as i64, (at % bound.classes) as i64); // dimensions
        row[1..=row[0] as usize].iter().map(move |&number| [image, class, number.into()])
    });
    y.chunks_exact_mut(3).zip(places).for_each(|(y, place)| y.copy_from_slice(&place));
    Ok(())
}

/// One class of one image.
struct Class<'a> {
    op: &'a Suppression,
    boxes: &'a [f32],
    scores: &'a [f32],
    least: Option<f32>,
    overlap: f32,
}

impl Class<'_> {
    /// Leaves the numbers of kept boxes in front, by falling score, and tells how many there are.
    fn keep(&self, most: usize, row: &mut [u32]) -> u32 {
        let (order, sides) = row.split_at_mut(self.scores.len());
        let mut count = 0;
        for (number, &score) in (0u32..).zip(self.scores) {
            if self.least.is_none_or(|least| score > least) {
                order[count] = number;
                count += 1;
            }
        }
        let order = &mut order[..count];
        // Adding 0 makes one zero of both.
        let score = |number: u32| self.scores[number as usize] + 0.0;
        order.sort_unstable_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        let (mut kept, all) = (0, self.scores.len());
        for at in 0..count {
            if kept >= most {
                break;
            }
            let own = self.corners(order[at] as usize);
            let hit = self.op.isa.dispatch(Overlap { own, sides, all, kept, overlap: self.overlap });
            if !hit {
                order[kept] = order[at];
                own.iter().enumerate().for_each(|(side, x)| sides[side * all + kept] = x.to_bits());
                kept += 1;
            }
        }
        kept as u32 // at most the number of boxes
    }

    /// Least x and y, greatest x and y, area.
    fn corners(&self, number: usize) -> [f32; SIDES] {
        let Some(&[a, b, c, d]) = self.boxes[number * 4..].first_chunk() else { return [0.0; SIDES] };
        let [left, top, right, bottom] = if self.op.centred {
            let (half_width, half_height) = (c / 2.0, d / 2.0);
            [a - half_width, b - half_height, a + half_width, b + half_height]
        } else {
            let ordered = |x: f32, y: f32| if x >= y { (y, x) } else { (x, y) };
            let ((top, bottom), (left, right)) = (ordered(a, c), ordered(b, d));
            [left, top, right, bottom]
        };
        [left, top, right, bottom, (right - left) * (bottom - top)]
    }
}

/// Whether a box overlaps one of those that are kept.
struct Overlap<'a> {
    own: [f32; SIDES],
    sides: &'a [u32],
    /// From side to side.
    all: usize,
    kept: usize,
    overlap: f32,
}

/// Boxes that are compared before somebody looks at the answer.
const CHUNK: usize = 32;

impl Kernel for Overlap<'_> {
    type Out = bool;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        let [left, top, right, bottom, area] = self.own;
        let mut at = 0;
        while at < self.kept {
            let n = (self.kept - at).min(CHUNK);
            let lefts = &self.sides[at..at + n];
            let tops = &self.sides[self.all + at..][..n];
            let rights = &self.sides[2 * self.all + at..][..n];
            let bottoms = &self.sides[3 * self.all + at..][..n];
            let areas = &self.sides[4 * self.all + at..][..n];
            let mut hit = false;
            for i in 0..n {
                let other = f32::from_bits(areas[i]);
                let width = right.min(f32::from_bits(rights[i])) - left.max(f32::from_bits(lefts[i]));
                let height = bottom.min(f32::from_bits(bottoms[i])) - top.max(f32::from_bits(tops[i]));
                let common = width * height;
                let real = (width > 0.0) & (height > 0.0) & (common > 0.0) & (area > 0.0) & (other > 0.0);
                hit |= real & (common / (area + other - common) > self.overlap);
            }
            if hit {
                return true;
            }
            at += n;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{OpTest, Tensor};

    fn overlap(a: &[f32], b: &[f32], centred: bool) -> f32 {
        let corners = |x: &[f32]| match centred {
            true => [x[0] - x[2] / 2.0, x[1] - x[3] / 2.0, x[0] + x[2] / 2.0, x[1] + x[3] / 2.0],
            false => [x[1].min(x[3]), x[0].min(x[2]), x[1].max(x[3]), x[0].max(x[2])],
        };
        let (a, b) = (corners(a), corners(b));
        let area = |x: [f32; 4]| (x[2] - x[0]).max(0.0) * (x[3] - x[1]).max(0.0);
        let common = area([a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])]);
        if common > 0.0 { common / (area(a) + area(b) - common) } else { 0.0 }
    }

    fn naive(boxes: &Tensor, scores: &Tensor, most: usize, limits: (f32, Option<f32>), centred: bool) -> Vec<i64> {
        let (b, s) = (boxes.to_vec::<f32>(), scores.to_vec::<f32>());
        let (count, classes) = (boxes.dims[1] as usize, scores.dims[1] as usize);
        let mut all = Vec::new();
        for (image, class) in (0..boxes.dims[0] as usize * classes).map(|k| (k / classes, k % classes)) {
            let score = |n: usize| s[(image * classes + class) * count + n];
            let place = |n: usize| &b[(image * count + n) * 4..][..4];
            let mut order: Vec<usize> = (0..count).filter(|&n| limits.1.is_none_or(|least| score(n) > least)).collect();
            order.sort_by(|&x, &y| score(y).partial_cmp(&score(x)).unwrap());
            let mut kept: Vec<usize> = Vec::new();
            for n in order {
                if kept.len() < most && kept.iter().all(|&k| overlap(place(n), place(k), centred) <= limits.0) {
                    kept.push(n);
                    all.extend([image as i64, class as i64, n as i64]);
                }
            }
        }
        all
    }

    fn node(case: OpTest, boxes: &Tensor, scores: &Tensor, centred: bool) -> OpTest {
        case.int("center_point_box", centred.into()).input(boxes).input(scores)
    }

    #[test]
    fn like_the_definition() {
        for (images, classes, count) in [(1, 1, 1), (2, 3, 100), (1, 2, 0), (0, 1, 4)] {
            for centred in [false, true] {
                let boxes = Tensor::random(&[images, count, 4], 1);
                // Few scores, so that many are equal.
                let scores = Tensor::from_fn(&[images, classes, count], |k| (k * 7 % 11) as f32 / 11.0);
                for (most, overlap, least) in [(1000, 0.1, None), (3, 0.0, Some(0.3)), (7, 1.0, Some(0.0))] {
                    let want = naive(&boxes, &scores, most, (overlap, least), centred);
                    on_all("NonMaxSuppression", 11, |case| {
                        let case = node(case, &boxes, &scores, centred).input(&Tensor::new(&[1], &[most as i64]));
                        let case = case.input(&Tensor::new(&[1], &[overlap]));
                        let case = match least {
                            Some(least) => case.input(&Tensor::new(&[], &[least])),
                            None => case,
                        };
                        let y = case.late_output(DType::I64, 2).run();
                        assert_eq!(y[0], Tensor::new(&[want.len() as i64 / 3, 3], &want));
                    });
                }
            }
        }
    }

    #[test]
    fn limits_are_checked_and_default_to_nothing() {
        let (boxes, scores) = (Tensor::random(&[1, 5, 4], 1), Tensor::random(&[1, 1, 5], 2));
        let none = node(Case::new("NonMaxSuppression", 11), &boxes, &scores, false).late_output(DType::I64, 2).run();
        assert_eq!(none[0].dims, [0, 3]);
        let case = node(Case::new("NonMaxSuppression", 11), &boxes, &scores, false).input(&Tensor::new(&[1], &[2i64]));
        let error = case.input(&Tensor::new(&[1], &[1.5f32])).late_output(DType::I64, 2).try_run().unwrap_err();
        assert!(error.contains("input 3 (iou_threshold) is 1.5"), "{error}");
        let case = Case::new("NonMaxSuppression", 11).int("center_point_box", 2).input(&boxes).input(&scores);
        let (_, text) = case.late_output(DType::I64, 2).rejection();
        assert!(text.contains("center_point_box = 2"), "{text}");
    }
}
