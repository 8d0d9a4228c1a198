# tests/tools/field_models.py -- models of the field in their full sizes, for tools/python/export_graph.py.
# SPDX-License-Identifier: Apache-2.0
#
# They need PyTorch, and torchvision, timm and transformers beside it. No weights: sizes come from configurations.
import torch
from torch import nn


def bert():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig())


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig())


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig())


class Tagger(nn.Module):
    def __init__(self, words=30000, width=512, layers=2, tags=50):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * width, tags)

    def forward(self, ids, state=None):
        rows, (hidden, cell) = self.lstm(self.words(ids), state)
        return {"tags": self.tags(rows), "state": (hidden, cell)}


def lstm():
    return Tagger()


def twice(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, channels=3, classes=2, width=64, levels=4):
        super().__init__()
        sizes = [width << level for level in range(levels + 1)]
        self.first = twice(channels, width)
        self.down = nn.ModuleList(twice(a, b) for a, b in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(list(zip(sizes, sizes[1:]))))
        self.joined = nn.ModuleList(twice(b, a) for a, b in reversed(list(zip(sizes, sizes[1:]))))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        levels = [self.first(x)]
        for block in self.down:
            levels.append(block(nn.functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for up, block in zip(self.up, self.joined):
            x = block(torch.cat([levels.pop(), up(x)], dim=1))
        return self.last(x)


def unet():
    return UNet()


# Name: factory, inputs, values of the forward pass.
MODELS = {
    "ViT-B/16": ("torchvision.models:vit_b_16", ["x=32x3x224x224"], []),
    "Swin-T": ("torchvision.models:swin_t", ["x=32x3x224x224"], []),
    "ViT-S/16": ("timm.models.vision_transformer:vit_small_patch16_224", ["x=32x3x224x224"], []),
    "ConvNeXt-T": ("timm.models.convnext:convnext_tiny", ["x=32x3x224x224"], []),
    "BERT": ("field_models:bert", ["input_ids=32x512:int64"], []),
    "GPT-2": ("field_models:gpt2", ["input_ids=16x1024:int64"], []),
    "T5": ("field_models:t5", ["input_ids=16x512:int64", "decoder_input_ids=16x128:int64"], []),
    "Llama": ("field_models:llama", ["input_ids=8x2048:int64"], []),
    "Mixtral": ("field_models:mixtral", ["input_ids=8x2048:int64"], []),
    "LSTM": ("field_models:lstm", ["ids=64x128:int64"], []),
    "UNet": ("field_models:unet", ["x=16x3x512x512"], []),
}
