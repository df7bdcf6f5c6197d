"""The networks of the paper's experiments, and others with published weights. All take
images in [0, 1].
"""

from laplacebridge_reproduction.models.densenet import densenet121 as densenet121
from laplacebridge_reproduction.models.efficientnet import EfficientNetLite0 as EfficientNetLite0
from laplacebridge_reproduction.models.prior_network import PriorNetwork as PriorNetwork
from laplacebridge_reproduction.models.published import pretrained as pretrained
from laplacebridge_reproduction.models.published import weights as weights
from laplacebridge_reproduction.models.resnet import ResNet as ResNet
from laplacebridge_reproduction.models.resnet import resnet14 as resnet14
from laplacebridge_reproduction.models.resnet import resnet18 as resnet18
from laplacebridge_reproduction.models.resnet import resnet20 as resnet20
from laplacebridge_reproduction.models.resnet import resnet56 as resnet56
from laplacebridge_reproduction.models.resnet import svhn_resnet18 as svhn_resnet18
from laplacebridge_reproduction.models.small import initialised as initialised
from laplacebridge_reproduction.models.small import mnist_cnn as mnist_cnn
from laplacebridge_reproduction.models.small import moons_mlp as moons_mlp
