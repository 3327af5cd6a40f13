//! Convolutions with windows of 3 by 3 as products of transformed tiles: F(2x2, 3x3) of Winograd (Lavin and Gray, *Fast Algorithms for
//! Convolutional Neural Networks*, CVPR 2016, section 4.1).
//!
//! ```text
//! tile of y = A^T [ sum over channels of (G w G^T) * (B^T x B) ] A + b        (* element by element)
//! ```
//! A tile is 2 by 2 pixels of y, which follow from 4 by 4 pixels of x: 16 multiplications for each channel and output instead of 36. The
//! 16 numbers of a transformed tile are its *positions*; those of one position of some tiles are rows, which are multiplied with a matrix of
//! the position. A tile over the edge of y is computed whole, and what lies outside is dropped.
//!
//! **Order.** Transforms add four rows, then four columns, in the order below. The products have the order of `convolution.rs`: channels
//! in parts of at most 256. So neither the other tiles of a block, nor the division of pixels or outputs, changes a bit. Whether its row and its column
//! are even does: pixels of a tile are sums of other products. An infinite element of x may make NaN of pixels whose windows it belongs to.

#![expect(clippy::needless_range_loop, reason = "one index into several arrays of registers")]

use std::ops::Range;

use crate::layers::taps::{Pixels, Places, Taps, parts};
use crate::layers::window::Window;
use crate::layers::window_product::{PixelProducts, WindowProduct};
use crate::packing::lines::LINE_LEN;
use crate::products::panel_product::FETCH_AHEAD_BYTES;
use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// Pixels of y along each side of a tile.
const TILE: usize = 2;

/// Pixels of x along each side of what a tile follows from.
const REACH: usize = 4;

const POSITIONS: usize = REACH * REACH;

/// Tiles that are computed together: as many as leave their rows in a near cache, if the weights stay there too.
const BLOCK_TILES: usize = 32;

/// The same of weights that do not stay in a near cache: as many as let them be read seldom.
const FAR_BLOCK_TILES: usize = 64;

/// With fewer channels of x, transforms take as long as the products that they save.
const INPUTS_MIN: usize = 64;

/// The same of y.
const OUTPUTS_MIN: usize = 32;

/// Channels come in multiples of this, so that every instruction set has whole vectors.
const CHANNELS_STEP: usize = 16;

/// The weights of a convolution.
pub(super) struct Winograd {
    inputs: usize,
    /// Tiles that are computed together.
    block: usize,
    /// Rows and columns of padding before x.
    before: [usize; 2],
    /// For each position, a matrix `[inputs, outputs]`.
    products: Vec<WindowProduct>,
    /// `[outputs]`.
    bias: Vec<f32>,
}

/// The pixels of y, and the tiles that they are divided into.
#[derive(Debug, Clone, Copy)]
pub(super) struct TileGrid {
    rows: usize,
    columns: usize,
}

impl TileGrid {
    /// The tiles of images of y that have `rows` rows of `columns` pixels.
    pub(super) fn new([rows, columns]: [usize; 2]) -> Self {
        Self { rows, columns }
    }

    /// Rows of tiles of an image.
    pub(super) fn lines(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    /// Tiles of a row of them.
    pub(super) fn along(&self) -> usize {
        self.columns.div_ceil(TILE)
    }

    /// The pixel with which a row of tiles begins, both counted over all images.
    pub(super) fn first_pixel(&self, line: usize) -> usize {
        let (image, line) = (line / self.lines().max(1), line % self.lines().max(1));
        (image * self.rows + TILE * line) * self.columns
    }

    /// The row of tiles that a pixel belongs to.
    pub(super) fn line_of(&self, pixel: usize) -> usize {
        let row = pixel.checked_div(self.columns).unwrap_or(0);
        let image = row.checked_div(self.rows).unwrap_or(0);
        image * self.lines() + (row - image * self.rows) / TILE
    }
}

impl Winograd {
    /// Whether a convolution with one group has windows of 3 by 3 side by side, and as many channels as make up for the transforms. It is no
    /// matter of the instruction set: bits depend on it.
    pub(super) fn suits(taps: &Taps, outputs: usize) -> bool {
        let is_plain =
            |window: &Window| (window.kernel, window.stride, window.dilation) == (3, 1, 1);
        let is_wide =
            |channels: usize, least| channels >= least && channels.is_multiple_of(CHANNELS_STEP);
        taps.windows.iter().all(is_plain)
            && taps.inputs == taps.of_group
            && is_wide(taps.inputs, INPUTS_MIN)
            && is_wide(outputs, OUTPUTS_MIN)
    }

    /// Packs the weights `[output, tap, channel]` and the bias for vectors of `lanes` elements.
    pub(super) fn new(lanes: usize, taps: &Taps, w: &[f32], b: Option<&[f32]>) -> Self {
        const TAPS: usize = 9;
        let inputs = taps.inputs;
        let outputs = w.len() / (TAPS * inputs);
        let mut of_positions = vec![vec![0.0_f32; outputs * inputs]; POSITIONS];
        for (output, w) in w.chunks_exact(TAPS * inputs).enumerate() {
            for channel in 0..inputs {
                let tap = |tap: usize| f64::from(w[tap * inputs + channel]);
                let transformed = transform_weights(std::array::from_fn(tap));
                for (of_position, weight) in of_positions.iter_mut().zip(transformed) {
                    of_position[output * inputs + channel] = weight as f32;
                }
            }
        }
        let point = Taps { windows: [Window::POINT; 2], ..*taps };
        let parts = parts(inputs);
        let product = |w: &Vec<f32>| WindowProduct::new(lanes, &point, &parts, w, None, outputs);
        let mut products: Vec<WindowProduct> = of_positions.iter().map(product).collect();
        let bytes = products.iter().map(WindowProduct::bytes).sum();
        products.iter_mut().for_each(|product| product.set_turn(bytes));
        let is_far = bytes > FETCH_AHEAD_BYTES;
        Self {
            inputs,
            block: if is_far { FAR_BLOCK_TILES } else { BLOCK_TILES },
            before: taps.windows.map(|window| window.before),
            products,
            bias: b.map_or_else(|| vec![0.0; outputs], <[f32]>::to_vec),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let of_products: usize = self.products.iter().map(WindowProduct::bytes).sum();
        of_products + size_of_val(&self.bias[..])
    }

    /// The matrix of one position, whose panels divide the outputs.
    pub(super) fn of_position(&self) -> &WindowProduct {
        &self.products[0]
    }

    /// Multiplications for an element of y, of whole tiles.
    pub(super) fn multiplications(&self) -> usize {
        self.inputs * POSITIONS / (TILE * TILE)
    }

    /// Bytes that a run on one thread needs beside its tensors.
    pub(super) fn scratch_bytes(&self) -> usize {
        let elements = self.rows(self.inputs).len() + self.rows(self.bias.len()).len();
        let addresses = size_of::<[*const f32; POSITIONS]>() + size_of::<Tile>();
        size_of::<f32>() * (elements + self.inputs) + addresses * self.block
    }

    /// Computes the outputs of `panels` of the pixels of `lines`, rows of tiles, both counted over all images. `y` gives for a pixel where these
    /// outputs go; `done` is called with pixels that are complete.
    ///
    /// # Safety
    /// These outputs are writable at the address that `y` gives for a pixel of `lines`, and nobody else accesses them meanwhile, but `done`. The
    /// weights were packed for the vectors of `unit`, and the images of `places` have as many rows of tiles.
    pub(super) unsafe fn run(
        &self,
        unit: VectorUnit,
        places: &Places<'_>,
        panels: Range<usize>,
        lines: Range<usize>,
        y: impl Fn(usize) -> *mut f32,
        mut done: impl FnMut(Range<usize>),
    ) {
        let outputs = self.of_position().outputs(panels.clone());
        let grid = TileGrid::new(places.windows);
        let (of_x, of_y) = (self.rows(self.inputs), self.rows(outputs.len()));
        let mut transformed: Vec<f32> = Vec::with_capacity(of_x.len());
        let mut products: Vec<f32> = Vec::with_capacity(of_y.len());
        let (x, sums) = (transformed.as_mut_ptr(), products.as_mut_ptr());
        let zeros = vec![0.0_f32; self.inputs];
        let tiles = lines.len() * grid.along();
        let blocks = tiles.div_ceil(self.block);
        let (mut from, mut to): (Vec<[*const f32; POSITIONS]>, Vec<Tile>) = Default::default();
        let mut finished = lines.start;
        for block in 0..blocks {
            let of_block = tiles * block / blocks..tiles * (block + 1) / blocks;
            let end = of_block.end;
            from.clear();
            to.clear();
            for tile in of_block {
                let (line, column) = (lines.start + tile / grid.along(), tile % grid.along());
                from.push(self.pixels_of_x(places, &zeros, line, column));
                to.push(pixels_of_y(grid, line, column, &y));
            }
            let rows: Vec<*const f32> =
                (0..from.len()).map(|tile| x.wrapping_add(tile * of_x.step).cast_const()).collect();
            let of_rows: Vec<*mut f32> =
                (0..from.len()).map(|tile| sums.wrapping_add(tile * of_y.step)).collect();
            unit.vectorize(TransformInputs { from: &from, inputs: self.inputs, rows: of_x, x });
            for (position, weights) in self.products.iter().enumerate() {
                let skip = position * of_x.stride;
                let of_rows: Vec<*mut f32> =
                    of_rows.iter().map(|row| row.wrapping_add(position * of_y.stride)).collect();
                // Rows of `inputs` elements lie at `rows`, `skip` further, and `outputs` elements after each of `of_rows` are this run's own.
                let at = Pixels { taps: &rows, skip, count: rows.len(), y: &of_rows };
                unit.vectorize(PixelProducts { weights, panels: panels.clone(), at });
            }
            let bias = &self.bias[outputs.clone()];
            unit.vectorize(TransformOutputs { sums, rows: of_y, bias, to: &to });
            let complete = lines.start + end / grid.along();
            done(grid.first_pixel(finished)..grid.first_pixel(complete));
            finished = complete;
        }
    }

    /// Rows of `len` elements for each tile of a block and each position.
    fn rows(&self, len: usize) -> Rows {
        let step = len + LINE_LEN;
        Rows { step, stride: self.block * step + LINE_LEN }
    }

    /// Where the pixels of x lie that a tile follows from, row by row: in the image, or in `zeros`.
    fn pixels_of_x(
        &self,
        places: &Places<'_>,
        zeros: &[f32],
        line: usize,
        column: usize,
    ) -> [*const f32; POSITIONS] {
        let Places { x, size: [height, width], windows } = *places;
        let lines = TileGrid::new(windows).lines();
        let (image, line) = (line / lines, line % lines);
        std::array::from_fn(|position| {
            let row = (TILE * line + position / REACH).checked_sub(self.before[0]);
            let column = (TILE * column + position % REACH).checked_sub(self.before[1]);
            match (row, column) {
                (Some(row), Some(column)) if row < height && column < width => {
                    let pixel = (image * height + row) * width + column;
                    x[pixel * self.inputs..][..self.inputs].as_ptr()
                }
                _ => zeros.as_ptr(),
            }
        })
    }
}

/// Where the pixels of a tile go, row by row; null for those outside of y.
type Tile = [*mut f32; TILE * TILE];

fn pixels_of_y(grid: TileGrid, line: usize, column: usize, y: &impl Fn(usize) -> *mut f32) -> Tile {
    let first_row = TILE * (line % grid.lines());
    std::array::from_fn(|at| {
        let (row, column) = (at / TILE, TILE * column + at % TILE);
        let is_inside = first_row + row < grid.rows && column < grid.columns;
        let pixel = grid.first_pixel(line) + row * grid.columns + column;
        if is_inside { y(pixel) } else { std::ptr::null_mut() }
    })
}

/// `G w G^T` of the weights of one channel and output, row by row.
fn transform_weights(w: [f64; 9]) -> [f64; POSITIONS] {
    let transform = |[a, b, c]: [f64; 3]| [a, (a + b + c) / 2.0, (a - b + c) / 2.0, c];
    // The columns, then the rows.
    let columns: [[f64; REACH]; 3] =
        std::array::from_fn(|column| transform([w[column], w[3 + column], w[6 + column]]));
    let rows: [[f64; REACH]; REACH] =
        std::array::from_fn(|row| transform(columns.map(|column| column[row])));
    std::array::from_fn(|position| rows[position / REACH][position % REACH])
}

/// Rows of elements, one for each tile of a block and each position.
#[derive(Clone, Copy)]
struct Rows {
    /// Elements from one tile to the next: a line more than a row has, so that rows do not fall into the same sets of a cache.
    step: usize,
    /// Elements from one position to the next, likewise.
    stride: usize,
}

impl Rows {
    /// Elements of all of them.
    fn len(&self) -> usize {
        POSITIONS * self.stride
    }
}

/// `B^T x B` of some tiles.
///
/// **Contract**, which whoever runs it holds: `inputs` elements are readable at each address of `from`, and are a multiple of a vector's
/// length; there are no more tiles than in a block, and the elements of `rows` are writable at `x`.
struct TransformInputs<'a> {
    from: &'a [[*const f32; POSITIONS]],
    inputs: usize,
    rows: Rows,
    x: *mut f32,
}

impl SimdOp for TransformInputs<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { from, inputs, rows, x } = self;
        for (tile, from) in from.iter().enumerate() {
            for channel in (0..inputs).step_by(S::LANES) {
                // SAFETY: the contract: a vector of channels follows each address, and each row of the tile has as many.
                unsafe {
                    let mut columns = [[simd.splat(0.0); REACH]; REACH];
                    for column in 0..REACH {
                        let mut of = [simd.splat(0.0); REACH];
                        for row in 0..REACH {
                            of[row] = simd.load(from[row * REACH + column].add(channel));
                        }
                        columns[column] = transform_inputs(simd, of);
                    }
                    let to = x.add(tile * rows.step + channel);
                    for row in 0..REACH {
                        let mut of = [simd.splat(0.0); REACH];
                        for column in 0..REACH {
                            of[column] = columns[column][row];
                        }
                        let of = transform_inputs(simd, of);
                        for column in 0..REACH {
                            simd.store(to.add((row * REACH + column) * rows.stride), of[column]);
                        }
                    }
                }
            }
        }
    }
}

/// `B^T` times a column.
#[inline(always)]
fn transform_inputs<S: Simd>(simd: S, x: [S::Vector; REACH]) -> [S::Vector; REACH] {
    [simd.sub(x[0], x[2]), simd.add(x[1], x[2]), simd.sub(x[2], x[1]), simd.sub(x[1], x[3])]
}

/// `A^T` times a column.
#[inline(always)]
fn transform_sums<S: Simd>(simd: S, sums: [S::Vector; REACH]) -> [S::Vector; TILE] {
    let first = simd.add(simd.add(sums[0], sums[1]), sums[2]);
    [first, simd.sub(simd.sub(sums[1], sums[2]), sums[3])]
}

/// `A^T sums A + b` of some tiles.
///
/// **Contract**, which whoever runs it holds: the elements of `rows` are readable at `sums`, and there are no more tiles than in a block; at each
/// address of `to` that is not null as many elements are writable as `bias` has, a multiple of a vector's length.
struct TransformOutputs<'a> {
    sums: *const f32,
    rows: Rows,
    bias: &'a [f32],
    to: &'a [Tile],
}

impl SimdOp for TransformOutputs<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { sums, rows, bias, to } = self;
        for (tile, to) in to.iter().enumerate() {
            for output in (0..bias.len()).step_by(S::LANES) {
                // SAFETY: the contract: each row of the tile has a vector of outputs here, and so has each pixel that is not null.
                unsafe {
                    let from = sums.add(tile * rows.step + output);
                    let mut columns = [[simd.splat(0.0); TILE]; REACH];
                    for column in 0..REACH {
                        let mut of = [simd.splat(0.0); REACH];
                        for row in 0..REACH {
                            of[row] = simd.load(from.add((row * REACH + column) * rows.stride));
                        }
                        columns[column] = transform_sums(simd, of);
                    }
                    let bias = simd.load(bias.as_ptr().add(output));
                    for row in 0..TILE {
                        let mut of = [simd.splat(0.0); REACH];
                        for column in 0..REACH {
                            of[column] = columns[column][row];
                        }
                        let pixels = transform_sums(simd, of);
                        for column in 0..TILE {
                            let to = to[row * TILE + column];
                            if !to.is_null() {
                                simd.store(to.add(output), simd.add(pixels[column], bias));
                            }
                        }
                    }
                }
            }
        }
    }
}
