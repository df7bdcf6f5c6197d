"""The networks of the paper's experiments, and others with published weights. All take images in [0, 1]."""

from laplacebridge.paper.models.densenet import densenet121 as densenet121
from laplacebridge.paper.models.efficientnet import EfficientNetLite0 as EfficientNetLite0
from laplacebridge.paper.models.prior_network import PriorNetwork as PriorNetwork
from laplacebridge.paper.models.published import pretrained as pretrained
from laplacebridge.paper.models.published import weights as weights
from laplacebridge.paper.models.resnet import ResNet as ResNet
from laplacebridge.paper.models.resnet import resnet14 as resnet14
from laplacebridge.paper.models.resnet import resnet18 as resnet18
from laplacebridge.paper.models.resnet import resnet20 as resnet20
from laplacebridge.paper.models.resnet import resnet56 as resnet56
from laplacebridge.paper.models.resnet import svhn_resnet18 as svhn_resnet18
from laplacebridge.paper.models.small import initialised as initialised
from laplacebridge.paper.models.small import mnist_cnn as mnist_cnn
from laplacebridge.paper.models.small import moons_mlp as moons_mlp
