//! Networks of drawn operators around convolutions, and what rten computes of them.

use std::sync::Arc;

use rten::{ModelOptions, RunOptions, ThreadPool, Value};
use rten_onnx::onnx::{AttributeProto, AttributeType};

use super::{ROWS, Writer, int, ints};

/// splitmix64
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

fn text(name: &str, text: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        s: Some(text.to_owned()),
        r#type: Some(AttributeType::STRING),
        ..AttributeProto::default()
    }
}

/// An image inside a network, `[channels, height, width]`.
#[derive(Clone)]
struct Image {
    name: String,
    channels: usize,
    size: [usize; 2],
}

pub(crate) struct Network {
    writer: Writer,
    draw: Draw,
    all: Vec<Image>,
}

impl Network {
    fn image(&mut self) -> Image {
        // Mostly the last one.
        let back = if self.draw.below(3) > 0 { 1 } else { 1 + self.draw.below(self.all.len()) };
        self.all[self.all.len() - back].clone()
    }

    fn add(&mut self, name: String, channels: usize, size: [usize; 2]) {
        self.all.push(Image { name, channels, size });
    }

    fn convolution(&mut self) {
        let x = self.image();
        let groups = [1, 1, 1, x.channels, 2][self.draw.below(5)];
        let groups = if x.channels.is_multiple_of(groups) { groups } else { 1 };
        let outputs = groups * [1, 2, 5, 9][self.draw.below(4)];
        let (k, stride) = (1 + self.draw.below(3), 1 + self.draw.below(2));
        let pad = self.draw.below(k);
        let w = self.writer.weights(&[outputs, x.channels / groups, k, k]);
        let b = self.writer.weights(&[outputs]);
        let attributes = vec![
            ints("strides", &[stride as i64; 2]),
            int("group", groups as i64),
            ints("pads", &[pad as i64; 4]),
            ints("dilations", &[1, 1]),
            ints("kernel_shape", &[k as i64; 2]),
        ];
        let size = x.size.map(|n| (n + 2 * pad).checked_sub(k).map(|room| room / stride + 1));
        let [Some(height), Some(width)] = size else { return };
        let name = self.writer.op("Conv", &[&x.name, &w, &b], attributes);
        self.add(name, outputs, [height, width]);
    }

    fn pool(&mut self) {
        let x = self.image();
        let (k, stride, ceil) =
            (1 + self.draw.below(3), 1 + self.draw.below(2), self.draw.below(2));
        let count = |n: usize| {
            let room = n.checked_sub(k)?;
            let count = if ceil == 1 { room.div_ceil(stride) } else { room / stride } + 1;
            Some(if (count - 1) * stride >= n { count - 1 } else { count })
        };
        let [Some(height), Some(width)] = x.size.map(count) else { return };
        let attributes = vec![
            ints("kernel_shape", &[k as i64; 2]),
            ints("strides", &[stride as i64; 2]),
            int("ceil_mode", ceil as i64),
        ];
        let operator = ["MaxPool", "AveragePool"][self.draw.below(2)];
        let name = self.writer.op(operator, &[&x.name], attributes);
        self.add(name, x.channels, [height, width]);
    }

    fn elements(&mut self) {
        let x = self.image();
        let operators = ["Relu", "LeakyRelu", "HardSwish", "HardSigmoid", "Tanh", "Sigmoid", "Neg"];
        let name = match self.draw.below(9) {
            0 => {
                let gate = self.writer.op("Sigmoid", &[&x.name], vec![]);
                self.writer.op("Mul", &[&x.name, &gate], vec![])
            }
            1 => {
                let scale = self.writer.weights(&[1, x.channels, 1, 1]);
                self.writer.op("Mul", &[&x.name, &scale], vec![])
            }
            2 => {
                let shift = self.writer.weights(&[x.channels, 1, 1]);
                self.writer.op("Add", &[&shift, &x.name], vec![])
            }
            4 => {
                // Hard swish as two exporters write it.
                let [zero, three, six] = [0.0, 3.0, 6.0].map(|n| self.writer.float(n));
                let sum = self.writer.op("Add", &[&x.name, &three], vec![]);
                let gate = self.writer.op("Clip", &[&sum, &zero, &six], vec![]);
                match self.draw.below(2) {
                    0 => {
                        let product = self.writer.op("Mul", &[&x.name, &gate], vec![]);
                        self.writer.op("Div", &[&product, &six], vec![])
                    }
                    _ => {
                        let gate = self.writer.op("Div", &[&gate, &six], vec![]);
                        self.writer.op("Mul", &[&gate, &x.name], vec![])
                    }
                }
            }
            3 => {
                // One number, or as many of it as the model crate writes to have it divided by.
                let six = match self.draw.below(2) {
                    0 => self.writer.float(6.0),
                    _ => self.writer.numbers(&[x.size[1]], vec![6.0; x.size[1]]),
                };
                self.writer.op("Div", &[&x.name, &six], vec![])
            }
            _ => {
                let operator = operators[self.draw.below(operators.len())];
                self.writer.op(operator, &[&x.name], vec![])
            }
        };
        self.add(name, x.channels, x.size);
    }

    fn sum(&mut self) {
        let x = self.image();
        let like = |other: &&Image| (other.channels, other.size) == (x.channels, x.size);
        let others: Vec<Image> = self.all.iter().filter(like).cloned().collect();
        let other = &others[self.draw.below(others.len())];
        let name = self.writer.op("Add", &[&x.name, &other.name], vec![]);
        self.add(name, x.channels, x.size);
    }

    fn concat(&mut self) {
        let x = self.image();
        let others: Vec<Image> =
            self.all.iter().filter(|other| other.size == x.size).cloned().collect();
        let other = &others[self.draw.below(others.len())];
        if x.channels + other.channels > 40 {
            return;
        }
        let name = self.writer.op("Concat", &[&x.name, &other.name], vec![int("axis", 1)]);
        self.add(name, x.channels + other.channels, x.size);
    }

    /// Adds a factor of each channel that is computed from the mean of its pixels.
    fn gate(&mut self) {
        let x = self.image();
        let axes = self.writer.ints(&[2, -1]);
        let mean = self.writer.op("ReduceMean", &[&x.name, &axes], vec![int("keepdims", 1)]);
        let w = self.writer.weights(&[x.channels, x.channels, 1, 1]);
        let kernel = ints("kernel_shape", &[1, 1]);
        let gate = self.writer.op("Conv", &[&mean, &w], vec![kernel]);
        let gate = self.writer.op("HardSigmoid", &[&gate], vec![]);
        let factors = if self.draw.below(2) == 0 { [&x.name, &gate] } else { [&gate, &x.name] };
        let name = self.writer.op("Mul", &factors.map(String::as_str), vec![]);
        self.add(name, x.channels, x.size);
    }

    /// Adds an operator that repeats pixels, makes several of each, or changes the places of channels.
    fn rearrange(&mut self) {
        let x = self.image();
        let [height, width] = x.size;
        match self.draw.below(3) {
            0 if height * width < 200 => {
                let scales = self.writer.numbers(&[4], vec![1.0, 1.0, 2.0, 3.0]);
                let attributes = vec![
                    text("mode", "nearest"),
                    text("coordinate_transformation_mode", "asymmetric"),
                    text("nearest_mode", "floor"),
                ];
                let name = self.writer.op("Resize", &[&x.name, "", &scales], attributes);
                self.add(name, x.channels, [2 * height, 3 * width]);
            }
            1 if height * width < 200 => {
                let outputs = 1 + self.draw.below(6);
                let w = self.writer.weights(&[x.channels, outputs, 2, 2]);
                let b = self.writer.weights(&[outputs]);
                let attributes = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
                let name = self.writer.op("ConvTranspose", &[&x.name, &w, &b], attributes);
                self.add(name, outputs, [2 * height, 2 * width]);
            }
            _ => {
                let groups = if x.channels.is_multiple_of(2) { 2 } else { x.channels };
                let parts = [groups, x.channels / groups, height, width].map(|n| n as i64);
                let y = self.writer.reshape(&x.name, &[&[-1], &parts[..]].concat());
                let perm = ints("perm", &[0, 2, 1, 3, 4]);
                let y = self.writer.op("Transpose", &[&y], vec![perm]);
                let whole = [-1, x.channels as i64, height as i64, width as i64];
                let name = self.writer.reshape(&y, &whole);
                self.add(name, x.channels, x.size);
            }
        }
    }

    /// Adds attention of the channels to each other, or what is left of it: rten computes its operators for one row otherwise than for
    /// several.
    fn attention(&mut self) {
        let x = self.image();
        let pixels = (x.size[0] * x.size[1]) as i64;
        let rows = self.writer.reshape(&x.name, &[-1, x.channels as i64, pixels]);
        let turned = self.writer.op("Transpose", &[&rows], vec![ints("perm", &[0, 2, 1])]);
        let mut scores = self.writer.op("MatMul", &[&rows, &turned], vec![]);
        let scale = self.writer.float(8.0);
        match self.draw.below(4) {
            0 => scores = self.writer.op("Div", &[&scores, &scale], vec![]),
            1 => {
                let product = self.writer.op("Mul", &[&scale, &scores], vec![]);
                let axes = self.writer.ints(&[1]);
                let keeps = vec![int("keepdims", 1)];
                let mask = self.writer.op("ReduceMean", &[&rows, &axes], keeps);
                let (zero, one) = (self.writer.ints(&[0]), self.writer.ints(&[1]));
                let axis = self.writer.ints(&[2]);
                let mask = self.writer.op("Slice", &[&mask, &zero, &one, &axis], vec![]);
                scores = self.writer.op("Add", &[&product, &mask], vec![]);
            }
            divided => {
                let axes = self.writer.ints(&[1, 2]);
                let square = self.writer.op("Mul", &[&rows, &rows], vec![]);
                let sum = self.writer.op("ReduceSum", &[&square, &axes], vec![int("keepdims", 1)]);
                if divided == 2 {
                    scores = self.writer.op("Div", &[&scores, &sum], vec![]);
                } else {
                    // A number of lower rank, divided by one of each row.
                    let shape = self.writer.op("Shape", &[&rows], vec![]);
                    let place = self.writer.ints(&[1]);
                    let count = self.writer.op("Gather", &[&shape, &place], vec![]);
                    let count = self.writer.op("Cast", &[&count], vec![int("to", 1)]);
                    let factor = self.writer.op("Div", &[&count, &sum], vec![]);
                    scores = self.writer.op("Mul", &[&scores, &factor], vec![]);
                }
            }
        }
        let weights = self.writer.op("Softmax", &[&scores], vec![int("axis", -1)]);
        let y = self.writer.op("MatMul", &[&weights, &rows], vec![]);
        let whole = [-1, x.channels as i64, x.size[0] as i64, x.size[1] as i64];
        let name = self.writer.reshape(&y, &whole);
        self.add(name, x.channels, x.size);
    }

    /// Adds a convolution along one line of all pixels, as files have it that write it in two dimensions, whose pixels are
    /// then read one by one.
    fn line(&mut self) {
        let x = self.image();
        let [height, width] = x.size;
        if height * width >= 200 {
            return;
        }
        let outputs = 1 + self.draw.below(9);
        let rows = [-1, x.channels as i64, 1, (height * width) as i64];
        let rows = self.writer.reshape(&x.name, &rows);
        let w = self.writer.weights(&[outputs, x.channels, 1, 3]);
        let attributes = vec![ints("kernel_shape", &[1, 3]), ints("pads", &[0, 1, 0, 1])];
        let y = self.writer.op("Conv", &[&rows, &w], attributes);
        let y = match height % 2 {
            0 => self.writer.reshape(&y, &[-1, outputs as i64, (height * width) as i64]),
            _ => {
                let axis = self.writer.ints(&[2]);
                self.writer.op("Squeeze", &[&y, &axis], vec![])
            }
        };
        let shift = self.writer.weights(&[1, outputs, 1]);
        let y = self.writer.op("Add", &[&y, &shift], vec![]);
        let y = self.writer.op("Relu", &[&y], vec![]);
        let turn = || ints("perm", &[0, 2, 1]);
        let pixels = self.writer.op("Transpose", &[&y], vec![turn()]);
        let (start, end, step) =
            (self.writer.ints(&[0]), self.writer.ints(&[i64::MAX]), self.writer.ints(&[2]));
        let along = self.writer.ints(&[1]);
        let half = self.writer.op("Slice", &[&pixels, &start, &end, &along, &step], vec![]);
        let more = (height * width).div_ceil(2);
        let longer = self.writer.op("Concat", &[&half, &pixels, &half], vec![int("axis", 1)]);
        let y = self.writer.op("Transpose", &[&longer], vec![turn()]);
        let size = [1, height * width + 2 * more];
        let name = self.writer.reshape(&y, &[-1, outputs as i64, 1, size[1] as i64]);
        self.add(name, outputs, size);
    }

    /// Rounds an image to the 256 numbers between its least and its greatest element, as the model crate writes `DynamicQuantizeLinear`,
    /// after a shift of each channel by multiples of a computed step.
    fn quantise(&mut self) {
        let x = self.image();
        let writer = &mut self.writer;
        let [zero, one, steps] = [0.0, 1.0, 255.0].map(|n| writer.float(n));
        let axes = writer.ints(&[1, 2, 3]);
        let mut extreme = |operator: &str, to: &str| {
            let found = writer.op(operator, &[&x.name, &axes], vec![int("keepdims", 1)]);
            writer.op(to, &[&found, &zero], vec![])
        };
        let (least, greatest) = match self.draw.below(2) {
            0 => {
                let least = extreme("ReduceMin", "Min");
                (least, extreme("ReduceMax", "Max"))
            }
            _ => {
                let greatest = extreme("ReduceMax", "Max");
                (extreme("ReduceMin", "Min"), greatest)
            }
        };
        let mut op = |operator: &str, inputs: &[&String]| {
            let inputs: Vec<&str> = inputs.iter().map(|name| name.as_str()).collect();
            self.writer.op(operator, &inputs, vec![])
        };
        let span = op("Sub", &[&greatest, &least]);
        let step = op("Div", &[&span, &steps]);
        let is_flat = op("Equal", &[&span, &zero]);
        let scale = op("Where", &[&is_flat, &one, &step]);
        let below = op("Neg", &[&least]);
        let below = op("Div", &[&below, &scale]);
        let below = op("Clip", &[&below, &zero, &steps]);
        let zero_point = op("Round", &[&below]);
        let shift = self.writer.weights(&[1, x.channels, 1, 1]);
        let ones = self.writer.numbers(&[x.size[1]], vec![1.0; x.size[1]]);
        let whole = self.writer.float(1.5 * (1 << 23) as f32);
        let mut op = |operator: &str, inputs: &[&String]| {
            let inputs: Vec<&str> = inputs.iter().map(|name| name.as_str()).collect();
            self.writer.op(operator, &inputs, vec![])
        };
        let shift = op("Div", &[&shift, &scale]);
        let shift = op("Floor", &[&shift]);
        let divisor = op("Mul", &[&scale, &ones]);
        let y = op("Div", &[&x.name, &divisor]);
        let y = op("Add", &[&y, &whole]);
        let y = op("Sub", &[&y, &whole]);
        let y = op("Add", &[&y, &zero_point]);
        let y = op("Clip", &[&y, &zero, &steps]);
        let y = op("Sub", &[&y, &zero_point]);
        let y = op("Add", &[&y, &shift]);
        let y = op("Mul", &[&scale, &y]);
        let gate = op("Sigmoid", &[&y]);
        let name = op("Mul", &[&gate, &y]);
        self.add(name, x.channels, x.size);
    }

    /// Adds the instance normalisation of an image, as the model crate writes it.
    fn standardise(&mut self) {
        let x = self.image();
        let axes = self.writer.ints(&[2, 3]);
        let epsilon = self.writer.float(0.1);
        let mut op = |operator: &str, inputs: &[&str]| {
            let keeps = operator.starts_with("Reduce").then(|| int("keepdims", 1));
            self.writer.op(operator, inputs, keeps.into_iter().collect())
        };
        let mean = op("ReduceMean", &[&x.name, &axes]);
        let centred = op("Sub", &[&x.name, &mean]);
        let square = op("Mul", &[&centred, &centred]);
        let variance = op("ReduceMean", &[&square, &axes]);
        let sum = op("Add", &[&variance, &epsilon]);
        let root = op("Sqrt", &[&sum]);
        let y = op("Div", &[&centred, &root]);
        let axes = self.writer.ints(&[1, 2, 3]);
        let greatest = self.writer.op("ReduceMax", &[&y, &axes], vec![int("keepdims", 1)]);
        let gate = self.writer.op("Sigmoid", &[&greatest], vec![]);
        let ones = self.writer.numbers(&[x.size[1]], vec![1.0; x.size[1]]);
        let gate = self.writer.op("Mul", &[&gate, &ones], vec![]);
        let name = self.writer.op("Div", &[&y, &gate], vec![]);
        self.add(name, x.channels, x.size);
    }

    /// Adds an operator that runs in rten.
    fn layout(&mut self) {
        let x = self.image();
        let name = self.writer.op("Transpose", &[&x.name], vec![ints("perm", &[0, 1, 3, 2])]);
        self.add(name, x.channels, [x.size[1], x.size[0]]);
    }

    pub(crate) fn draw(seed: u64) -> Writer {
        let (mut writer, mut draw) = (Writer::default(), Draw(seed));
        let (channels, size) = (1 + draw.below(6), [6 + draw.below(8), 6 + draw.below(8)]);
        let name = writer.floats(&[channels, size[0], size[1]]);
        let mut network = Self { writer, draw, all: vec![Image { name, channels, size }] };
        network.convolution();
        for _ in 0..12 {
            match network.draw.below(15) {
                0..3 => network.convolution(),
                3 => network.pool(),
                4 | 5 => network.elements(),
                6 => network.sum(),
                7 => network.concat(),
                8 | 9 => network.gate(),
                10 | 11 => network.rearrange(),
                12 => network.attention(),
                13 => network.line(),
                _ => network.layout(),
            }
        }
        let Self { mut writer, all, .. } = network;
        let last = all.last().unwrap();
        let elements = last.channels * last.size[0] * last.size[1];
        let flat = writer.reshape(&last.name, &[-1, elements as i64]);
        let y = match seed % 6 {
            0 => {
                // A bias that gives the sums an axis more.
                let (w, b) = (writer.weights(&[elements, 7]), writer.weights(&[1, 1, 7]));
                let product = writer.op("MatMul", &[&flat, &w], vec![]);
                let sum = writer.op("Add", &[&product, &b], vec![]);
                // It must have three axes for this.
                let same = writer.op("Transpose", &[&sum], vec![ints("perm", &[0, 1, 2])]);
                writer.reshape(&same, &[-1, 7])
            }
            1 => {
                // A number for each row of a matrix that is square.
                let square = writer.linear(&flat, elements, 49);
                let square = writer.reshape(&square, &[-1, 7, 7]);
                let (w, b) = (writer.weights(&[7, 7]), writer.weights(&[7, 1]));
                let product = writer.op("MatMul", &[&square, &w], vec![]);
                let sum = writer.op("Add", &[&product, &b], vec![]);
                let axes = writer.ints(&[2]);
                writer.op("ReduceSum", &[&sum, &axes], vec![int("keepdims", 0)])
            }
            2 => transformer_block(&mut writer, &flat, elements, seed / 6 % 5),
            3 => decoder_layer(&mut writer, &flat, elements),
            4 => scaled_rows(&mut writer, &flat, elements),
            _ if elements < 3 => writer.linear(&flat, elements, 7),
            _ => {
                // Windows over reflected edges, as the model crate writes a convolution within a step.
                let pads = writer.ints(&[0, 2, 0, 1]);
                let padded = writer.op("Pad", &[&flat, &pads], vec![text("mode", "reflect")]);
                let length = elements as i64 + 3;
                let windows = (0..3).flat_map(|at| 2 * at..2 * at + 4).map(|at| at % length);
                let windows: Vec<i64> = windows.collect();
                let windows = writer.ints(&windows);
                let taken = writer.op("Gather", &[&padded, &windows], vec![int("axis", 1)]);
                let rows = writer.reshape(&taken, &[-1, 12]);
                writer.linear(&rows, 12, 7)
            }
        };
        writer.output(&y, batchmaker_graph::ElementType::F32, ROWS, &[7]);
        let middle = &all[all.len() / 2];
        let row = [&[middle.channels][..], &middle.size].concat();
        writer.output(&middle.name, batchmaker_graph::ElementType::F32, ROWS, &row);
        writer
    }
}

/// `LayerNormalization(GELU(x) W + x)` of a product x, with the GELU written in one of five forms.
fn transformer_block(writer: &mut Writer, flat: &str, elements: usize, form: u64) -> String {
    let x = writer.linear(flat, elements, 7);
    let [half, one] = [0.5, 1.0].map(|number| writer.float(number));
    let gelu = if form == 4 {
        writer.op("Gelu", &[&x], vec![])
    } else {
        let of_erf = match form {
            0 | 1 => {
                let divisor = writer.float(std::f32::consts::SQRT_2);
                writer.op("Div", &[&x, &divisor], vec![])
            }
            _ => {
                let factor = writer.float(std::f32::consts::FRAC_1_SQRT_2);
                writer.op("Mul", &[&factor, &x], vec![])
            }
        };
        let erf = writer.op("Erf", &[&of_erf], vec![]);
        let sum = writer.op("Add", &[&erf, &one], vec![]);
        match form {
            0 | 2 => {
                let product = writer.op("Mul", &[&x, &sum], vec![]);
                writer.op("Mul", &[&product, &half], vec![])
            }
            1 => {
                let halved = writer.op("Mul", &[&x, &half], vec![]);
                writer.op("Mul", &[&halved, &sum], vec![])
            }
            _ => {
                let halved = writer.op("Mul", &[&half, &sum], vec![]);
                writer.op("Mul", &[&halved, &x], vec![])
            }
        }
    };
    let [up, again] = [(); 2].map(|()| writer.linear(&gelu, 7, 7));
    let sum = writer.op("Add", &[&up, &again], vec![]);
    let (scale, bias) = (writer.weights(&[7]), writer.weights(&[7]));
    writer.op("LayerNormalization", &[&sum, &scale, &bias], vec![int("axis", -1)])
}

/// Self-attention of three tokens and a layer norm, operator by operator, as PyTorch exports them.
fn decoder_layer(writer: &mut Writer, flat: &str, elements: usize) -> String {
    let x = writer.linear(flat, elements, 24);
    let x = writer.reshape(&x, &[-1, 3, 8]);
    let (w, b) = (writer.weights(&[8, 24]), writer.weights(&[24]));
    let product = writer.op("MatMul", &[&x, &w], vec![]);
    let all = writer.op("Add", &[&b, &product], vec![]);
    let mut heads = |from: i64, order: &[i64]| {
        let to = if from == 16 { i64::MAX } else { from + 8 };
        let [starts, ends, axes] = [from, to, -1].map(|number| writer.ints(&[number]));
        let part = writer.op("Slice", &[&all, &starts, &ends, &axes], vec![]);
        let part = writer.reshape(&part, &[0, 3, 2, 4]);
        writer.op("Transpose", &[&part], vec![ints("perm", order)])
    };
    let q = heads(0, &[0, 2, 1, 3]);
    let (k, v) = (heads(8, &[0, 2, 3, 1]), heads(16, &[0, 2, 1, 3]));
    let (two, mask) = (writer.float(2.0), writer.weights(&[2, 1, 3]));
    let q = writer.op("Div", &[&q, &two], vec![]);
    let scores = writer.op("MatMul", &[&q, &k], vec![]);
    let scores = writer.op("Add", &[&scores, &mask], vec![]);
    let weights = writer.op("Softmax", &[&scores], vec![int("axis", -1)]);
    let found = writer.op("MatMul", &[&weights, &v], vec![]);
    let found = writer.op("Transpose", &[&found], vec![ints("perm", &[0, 2, 1, 3])]);
    let found = writer.reshape(&found, &[0, 3, 8]);
    let z = writer.op("Add", &[&x, &found], vec![]);
    let last = writer.ints(&[-1]);
    let mean = writer.op("ReduceMean", &[&z, &last], vec![]);
    let apart = writer.op("Sub", &[&z, &mean], vec![]);
    let square = writer.op("Mul", &[&apart, &apart], vec![]);
    let variance = writer.op("ReduceMean", &[&square, &last], vec![]);
    let epsilon = writer.float(1e-3);
    let sum = writer.op("Add", &[&variance, &epsilon], vec![]);
    let deviation = writer.op("Sqrt", &[&sum], vec![]);
    let normal = writer.op("Div", &[&apart, &deviation], vec![]);
    let (scale, bias) = (writer.weights(&[8]), writer.weights(&[8]));
    let scaled = writer.op("Mul", &[&normal, &scale], vec![]);
    let y = writer.op("Add", &[&scaled, &bias], vec![]);
    let axes = writer.ints(&[1]);
    let greatest = writer.op("ReduceMax", &[&y, &axes], vec![int("keepdims", 0)]);
    writer.linear(&greatest, 8, 7)
}

/// Rows that are divided by their range, clipped, and multiplied by themselves and by it again.
fn scaled_rows(writer: &mut Writer, flat: &str, elements: usize) -> String {
    let x = writer.linear(flat, elements, 12);
    let axes = writer.ints(&[1]);
    let [least, greatest] =
        ["ReduceMin", "ReduceMax"].map(|operator| writer.op(operator, &[&x, &axes], vec![]));
    let range = writer.op("Sub", &[&greatest, &least], vec![]);
    let one = writer.float(1.0);
    let range = writer.op("Add", &[&one, &range], vec![]);
    let scaled = writer.op("Div", &[&x, &range], vec![]);
    let [low, high] = [-0.25, 0.3].map(|number| writer.float(number));
    let clipped = writer.op("Clip", &[&scaled, &low, &high], vec![]);
    let square = writer.op("Mul", &[&clipped, &clipped], vec![]);
    let turned = writer.op("Sub", &[&range, &square], vec![]);
    let more = writer.op("Max", &[&turned, &scaled], vec![]);
    let factors = writer.weights(&[12]);
    let y = writer.op("Mul", &[&factors, &more], vec![]);
    writer.linear(&y, 12, 7)
}

/// A convolution whose result is rounded to 256 numbers, before and after other operators. Every third is of large images.
pub(crate) fn quantised(seed: u64) -> Writer {
    let (mut writer, mut draw) = (Writer::default(), Draw(seed));
    let size = if seed.is_multiple_of(3) { [70, 61] } else { [5 + draw.below(8); 2] };
    let channels = 1 + draw.below(5);
    let name = writer.floats(&[channels, size[0], size[1]]);
    let mut network = Network { writer, draw, all: vec![Image { name, channels, size }] };
    if network.draw.below(2) == 0 {
        network.quantise();
    }
    network.all = vec![network.all.pop().unwrap()];
    network.convolution();
    network.all = vec![network.all.pop().unwrap()];
    if network.draw.below(2) == 0 {
        network.standardise();
        network.all = vec![network.all.pop().unwrap()];
    }
    network.quantise();
    let Network { mut writer, all, .. } = network;
    let last = all.last().unwrap();
    let row = [last.channels, last.size[0], last.size[1]];
    writer.output(&last.name, batchmaker_graph::ElementType::F32, ROWS, &row);
    writer
}

/// Computes the outputs with rten, which runs the whole program.
pub(crate) fn reference(writer: &Writer, rows: usize, data: &[f32]) -> Vec<Vec<f32>> {
    let model = ModelOptions::with_all_ops().load(writer.program().bytes.to_vec()).unwrap();
    let shape = [&[rows], &writer.inputs[0].0.shape[..]].concat();
    let value = Value::from_shape(&shape, data.to_vec()).unwrap();
    let id = |name: &str| model.node_id(name).unwrap();
    let pool = Arc::new(ThreadPool::with_num_threads(1));
    let options = RunOptions::default().with_thread_pool(Some(pool));
    let outputs: Vec<_> = (0..writer.outputs.len()).map(|at| id(&format!("out{at}"))).collect();
    let run = model.run(vec![(id("in0"), value.into())], &outputs, Some(options)).unwrap();
    let floats = run.into_iter().map(|value| match value {
        Value::FloatTensor(tensor) => tensor.into_data(),
        _ => panic!("floats"),
    });
    floats.collect()
}
