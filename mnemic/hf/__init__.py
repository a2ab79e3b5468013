"""Models of memory layers in Hugging Face transformers.

Importing this registers their classes: ``AutoModelForCausalLM.from_pretrained(folder)`` then needs
no code of the folder's own.
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from mnemic.hf.cache_mnemic import MnemicCache as MnemicCache
from mnemic.hf.configuration_mnemic import MnemicConfig as MnemicConfig
from mnemic.hf.modeling_mnemic import MnemicForCausalLM as MnemicForCausalLM
from mnemic.hf.modeling_mnemic import MnemicModel as MnemicModel

AutoConfig.register(MnemicConfig.model_type, MnemicConfig, exist_ok=True)
AutoModel.register(MnemicConfig, MnemicModel, exist_ok=True)
AutoModelForCausalLM.register(MnemicConfig, MnemicForCausalLM, exist_ok=True)
