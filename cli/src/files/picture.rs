//! Pictures as inputs: PNG and PGM files, brought to the channels, size and type that a model's input has.
//!
//! Size: every pixel of the result is the mean of the box of the picture that it covers, parts of pixels counted by their
//! area. Channels: grey is repeated, colours become grey by 0.299 R + 0.587 G + 0.114 B, transparency is ignored.
//! Numbers: 0 to 1 for floats, 0 to 255 (rounded) for uint8. Any other normalisation is the model's business.

use std::io::Cursor;

use half::{bf16, f16};
use ortolan::value::Tensor;
use ortolan_graph::ir::DType;

use crate::port::{Dim, Port, PortType};

/// Most pixels of a picture that is read.
const PIXEL_LIMIT: usize = 1 << 26;

/// A decoded picture: 8 bits a channel, 1 (grey) or 3 channels, row by row.
#[derive(Debug, PartialEq)]
pub struct Picture {
    width: usize,
    height: usize,
    channels: usize,
    data: Vec<u8>,
}

/// Where an input has its axes, and how long they are to be.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    shape: Vec<i64>,
    channels: usize,
    height: usize,
    width: usize,
    channels_last: bool,
}

/// The tensor that `port` takes, from the bytes of a `.png` or `.pgm` file. The error is a sentence.
pub fn read(file: &[u8], port: &Port) -> Result<Tensor, String> {
    let picture = if file.starts_with(b"P") { pgm(file)? } else { png(file)? };
    picture.tensor(port)
}

fn png(file: &[u8]) -> Result<Picture, String> {
    let wrong = |e: png::DecodingError| format!("it is no PNG picture that can be read: {e}");
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(wrong)?;
    let pixels = pixels(reader.info().width as usize, reader.info().height as usize)?;
    let bytes = reader.output_buffer_size().filter(|&n| n <= 4 * pixels).ok_or("the picture is too large")?;
    let mut data = vec![0; bytes];
    let frame = reader.next_frame(&mut data).map_err(wrong)?;
    data.truncate(frame.buffer_size());
    let (channels, data) = match frame.color_type {
        png::ColorType::Grayscale => (1, data),
        png::ColorType::Rgb => (3, data),
        png::ColorType::GrayscaleAlpha => (1, data.chunks_exact(2).map(|p| p[0]).collect()),
        png::ColorType::Rgba => (3, data.chunks_exact(4).flat_map(|p| p[..3].iter().copied()).collect()),
        png::ColorType::Indexed => return Err("its palette is missing".into()),
    };
    Ok(Picture { width: frame.width as usize, height: frame.height as usize, channels, data })
}

/// Netpbm's grey maps, as text (P2) and as bytes (P5), up to 16 bits.
fn pgm(file: &[u8]) -> Result<Picture, String> {
    let text = match file.get(..2) {
        Some(b"P2") => true,
        Some(b"P5") => false,
        _ => return Err("it is no PGM picture: it should begin with P2 or P5".into()),
    };
    let mut rest = &file[2..];
    let [width, height, most] =
        [(); 3].map(|()| number(&mut rest)).map(|n| n.ok_or("its width, height or largest grey is missing"));
    let (width, height, most) = (width?, height?, most?);
    if !(1..=65535).contains(&most) {
        return Err(format!("its largest grey is {most}; it can be 1 to 65535"));
    }
    let pixels = pixels(width, height)?;
    let scaled = |v: usize| u8::try_from((v.min(most) * 255 + most / 2) / most).unwrap_or(u8::MAX);
    let data: Vec<u8> = if text {
        (0..pixels).map_while(|_| number(&mut rest).map(scaled)).collect()
    } else {
        let rest = rest.get(1..).unwrap_or(&[]); // one white-space byte ends the header
        let wide = if most > 255 { 2 } else { 1 };
        rest.chunks_exact(wide)
            .take(pixels)
            .map(|c| scaled(c.iter().fold(0, |n, &b| n << 8 | usize::from(b))))
            .collect()
    };
    if data.len() < pixels {
        return Err(format!("it has {} of its {width} × {height} pixels", data.len()));
    }
    Ok(Picture { width, height, channels: 1, data })
}

/// The next decimal number of a netpbm header; `#` begins a comment.
fn number(rest: &mut &[u8]) -> Option<usize> {
    loop {
        match rest.first()? {
            b'#' => *rest = &rest[rest.iter().position(|&b| b == b'\n')?..],
            b if b.is_ascii_whitespace() => *rest = &rest[1..],
            _ => break,
        }
    }
    let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn pixels(width: usize, height: usize) -> Result<usize, String> {
    match width.checked_mul(height) {
        Some(0) => Err("the picture has no pixels".into()),
        Some(n) if n <= PIXEL_LIMIT => Ok(n),
        _ => Err(format!("a picture of {width} × {height} pixels is larger than the {PIXEL_LIMIT} that are read")),
    }
}

impl Picture {
    fn tensor(&self, port: &Port) -> Result<Tensor, String> {
        let PortType::Tensor { dtype, dims } = &port.ty else {
            return Err(format!("the input takes a {}, not a picture", port.ty));
        };
        let frame = self.frame(dims.as_deref(), port)?;
        let planes = self.resized(frame.channels, frame.height, frame.width);
        let area = frame.height * frame.width;
        let values: Vec<f32> = if frame.channels_last && frame.channels > 1 {
            (0..area).flat_map(|p| (0..frame.channels).map(move |c| c * area + p)).map(|at| planes[at]).collect()
        } else {
            planes
        };
        let bytes: Vec<u8> = match dtype {
            DType::U8 => values.iter().map(|v| v.round() as u8).collect(),
            DType::F32 => values.iter().flat_map(|v| (v / 255.0).to_le_bytes()).collect(),
            DType::F64 => values.iter().flat_map(|v| (f64::from(*v) / 255.0).to_le_bytes()).collect(),
            DType::F16 => values.iter().flat_map(|v| f16::from_f32(v / 255.0).to_le_bytes()).collect(),
            DType::Bf16 => values.iter().flat_map(|v| bf16::from_f32(v / 255.0).to_le_bytes()).collect(),
            other => return Err(format!("the input takes {other}; a picture can become a float type or uint8")),
        };
        Tensor::from_bytes(*dtype, &frame.shape, &bytes).map_err(|e| e.message().to_owned())
    }

    /// Reads the axes: [N,C,H,W], [N,H,W,C], [C,H,W], [H,W,C] or [H,W], N = 1; free axes take the picture's own sizes.
    fn frame(&self, dims: Option<&[Dim]>, port: &Port) -> Result<Frame, String> {
        let dims = dims.ok_or("the rank of the input is not known, so its axes can't be told apart")?;
        let fixed: Vec<Option<i64>> = dims.iter().map(Dim::fixed).collect();
        let wrong = || {
            format!(
                "a picture fits inputs of shape [1,C,H,W], [1,H,W,C], [C,H,W], [H,W,C] or [H,W] with 1 or 3 channels C; this one is {}",
                port.ty
            )
        };
        let colour = |d: Option<i64>| matches!(d, Some(1 | 3));
        let (batch, rest) = match fixed.as_slice() {
            [Some(1) | None, rest @ ..] if rest.len() == 3 => (true, rest),
            all if (2..=3).contains(&all.len()) => (false, all),
            _ => return Err(wrong()),
        };
        let (channel, height, width, channels_last) = match *rest {
            [h, w] => (Some(1), h, w, false),
            [c, h, w] if colour(c) => (c, h, w, false),
            [h, w, c] if colour(c) => (c, h, w, true),
            [None, h, w] => (None, h, w, false),
            _ => return Err(wrong()),
        };
        let size = |d: Option<i64>, own: usize| usize::try_from(d.unwrap_or(own as i64)).map_err(|_| wrong());
        let (channels, height, width) =
            (size(channel, self.channels)?, size(height, self.height)?, size(width, self.width)?);
        pixels(width, height)?;
        let mut shape: Vec<usize> = match rest.len() {
            2 => vec![height, width],
            _ if channels_last => vec![height, width, channels],
            _ => vec![channels, height, width],
        };
        if batch {
            shape.insert(0, 1);
        }
        let shape = shape.into_iter().map(|n| n as i64).collect();
        Ok(Frame { shape, channels, height, width, channels_last })
    }

    /// Planes of `height × width` means, one per channel, 0 to 255.
    fn resized(&self, channels: usize, height: usize, width: usize) -> Vec<f32> {
        let (columns, rows) = (boxes(self.width, width), boxes(self.height, height));
        let mut out = Vec::with_capacity(channels * height * width);
        for channel in 0..channels {
            let narrow: Vec<f32> = (0..self.height)
                .flat_map(|y| columns.iter().map(move |b| b.mean(|x| self.at(channel, channels, x, y))))
                .collect();
            for row in &rows {
                out.extend((0..width).map(|x| row.mean(|y| narrow[y * width + x])));
            }
        }
        out
    }

    fn at(&self, channel: usize, channels: usize, x: usize, y: usize) -> f32 {
        let pixel = &self.data[(y * self.width + x) * self.channels..][..self.channels];
        match (pixel, channels) {
            (&[r, g, b], 1) => 0.299 * f32::from(r) + 0.587 * f32::from(g) + 0.114 * f32::from(b),
            (&[grey], _) => f32::from(grey),
            (colours, _) => f32::from(colours[channel]),
        }
    }
}

/// The stretch of old pixels that one new pixel covers: weights of the first, the last and those between.
struct Span {
    first: usize,
    last: usize,
    head: f32,
    tail: f32,
}

impl Span {
    fn mean(&self, value: impl Fn(usize) -> f32) -> f32 {
        if self.first == self.last {
            return value(self.first);
        }
        let between: f32 = (self.first + 1..self.last).map(&value).sum();
        let weight = self.head + self.tail + (self.last - self.first - 1) as f32;
        (self.head * value(self.first) + between + self.tail * value(self.last)) / weight
    }
}

/// Cuts `old` pixels into `new` equal spans; exact, because cuts are counted in units of 1/`new` pixel.
fn boxes(old: usize, new: usize) -> Vec<Span> {
    let part = |units: usize| units as f32 / new as f32;
    (0..new)
        .map(|i| {
            let (from, to) = (i * old, (i + 1) * old);
            let (first, last) = (from / new, (to - 1) / new);
            Span { first, last, head: part((first + 1) * new - from), tail: part(to - last * new) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(dtype: DType, dims: &[i64]) -> Port {
        let dims = dims.iter().map(|&d| if d < 0 { Dim::Named("n".into()) } else { Dim::Fixed(d) }).collect();
        Port { name: "x".into(), ty: PortType::Tensor { dtype, dims: Some(dims) }, optional: false }
    }

    fn png_of(width: u32, height: u32, color: png::ColorType, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, width, height);
        encoder.set_color(color);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(data).unwrap();
        drop(writer);
        out
    }

    #[test]
    fn enlarged_pixels_come_back_exactly() {
        let small: Vec<u8> = (0..12).map(|i| i * 20).collect();
        let large: Vec<u8> = (0..6 * 8).map(|i| small[(i / 8 / 2) * 4 + i % 8 / 2]).collect();
        let t = read(&png_of(8, 6, png::ColorType::Grayscale, &large), &port(DType::U8, &[1, 1, 3, 4])).unwrap();
        assert_eq!(t.as_slice::<u8>().unwrap(), small);
        let t = read(&png_of(8, 6, png::ColorType::Grayscale, &large), &port(DType::F32, &[-1, 1, 3, 4])).unwrap();
        assert_eq!(t.shape(), [1, 1, 3, 4]);
        assert_eq!(t.as_slice::<f32>().unwrap()[1], 20.0 / 255.0);
    }

    #[test]
    fn boxes_are_means_over_areas_at_odd_sizes() {
        for (old, new) in [(7usize, 3usize), (3, 7), (5, 5), (1, 4), (4, 1), (10, 9)] {
            let value = |x: usize| (x * x % 11) as f32;
            for (i, span) in boxes(old, new).iter().enumerate() {
                let (from, to) = (i as f64 * old as f64 / new as f64, (i + 1) as f64 * old as f64 / new as f64);
                let area = |x: usize| (to.min(x as f64 + 1.0) - from.max(x as f64)).max(0.0);
                let want: f64 = (0..old).map(|x| area(x) * f64::from(value(x))).sum::<f64>() / (to - from);
                assert!((f64::from(span.mean(value)) - want).abs() < 1e-4, "{old} to {new}, {i}");
            }
        }
    }

    #[test]
    fn channels_go_where_the_input_has_them() {
        let rgb = png_of(2, 1, png::ColorType::Rgb, &[10, 20, 30, 40, 50, 60]);
        let planes = [10u8, 40, 20, 50, 30, 60];
        let cases: &[(&[i64], &[i64], &[u8])] = &[
            (&[1, 3, 1, 2], &[1, 3, 1, 2], &planes),
            (&[1, -1, 2, 3], &[1, 1, 2, 3], &[10, 20, 30, 40, 50, 60]),
            (&[3, -1, -1], &[3, 1, 2], &planes),
            (&[-1, -1, -1, -1], &[1, 3, 1, 2], &planes),
            (&[-1, -1, -1, 3], &[1, 1, 2, 3], &[10, 20, 30, 40, 50, 60]),
            (&[1, 2], &[1, 2], &[18, 48]),
            (&[1, 1, 1, 1], &[1, 1, 1, 1], &[33]),
        ];
        for (dims, shape, data) in cases {
            let t = read(&rgb, &port(DType::U8, dims)).unwrap();
            assert_eq!((t.shape(), t.as_slice::<u8>().unwrap()), (*shape, *data), "{dims:?}");
        }
        let grey = read(b"P5 1 1 255\n\x07", &port(DType::U8, &[1, 3, 1, 1])).unwrap();
        assert_eq!(grey.as_slice::<u8>().unwrap(), [7, 7, 7]);
        let alpha = png_of(1, 1, png::ColorType::Rgba, &[1, 2, 3, 0]);
        assert_eq!(read(&alpha, &port(DType::U8, &[3, 1, 1])).unwrap().as_slice::<u8>().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn grey_maps_are_read_as_text_and_bytes() {
        let want = Picture { width: 2, height: 1, channels: 1, data: vec![0, 255] };
        for file in
            [&b"P2\n# a comment\n2 1\n15\n0 15\n"[..], b"P5 2 1 255\n\x00\xff", b"P5\n2 1\n65535\n\x00\x00\xff\xff"]
        {
            assert_eq!(pgm(file).as_ref(), Ok(&want), "{:?}", String::from_utf8_lossy(file));
        }
    }

    #[test]
    fn what_is_no_picture_or_does_not_fit_is_refused() {
        let ok = b"P5 1 1 255\n\x07";
        let plain = port(DType::F32, &[1, 1, 2, 2]);
        let cases: &[(&[u8], Port, &str)] = &[
            (b"", plain.clone(), "no PNG"),
            (b"\x89PNG\r\n\x1a\n", plain.clone(), "no PNG"),
            (b"P6 1 1 255\n\x07\x07\x07", plain.clone(), "P2 or P5"),
            (b"P5 1 1", plain.clone(), "missing"),
            (b"P5 # no end", plain.clone(), "missing"),
            (b"P5 1 1 0\n", plain.clone(), "largest grey"),
            (b"P5 2 2 255\n\x07", plain.clone(), "1 of its 2 × 2"),
            (b"P2 2 1 9\n4 x", plain.clone(), "1 of its 2 × 1"),
            (b"P5 0 5 255\n", plain.clone(), "no pixels"),
            (b"P5 99999999999 99999999999 255\n", plain.clone(), "larger than"),
            (ok, port(DType::I64, &[1, 1, 2, 2]), "float type or uint8"),
            (ok, port(DType::F32, &[2, 1, 2, 2]), "[1,C,H,W]"),
            (ok, port(DType::F32, &[1, 4, 2, 5]), "[1,C,H,W]"),
            (ok, port(DType::F32, &[4]), "[1,C,H,W]"),
            (ok, port(DType::F32, &[1, 1, 0, 2]), "no pixels"),
        ];
        for (file, port, words) in cases {
            let error = read(file, port).expect_err(words);
            assert!(error.contains(words), "{words}: {error}");
        }
    }
}
